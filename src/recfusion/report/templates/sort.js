// Turn the heads of the main table into sort buttons; without scripts it is sorted by the main metric.
for (const [column, head] of document.querySelectorAll(".results thead th").entries()) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const down = column > 0 && head.getAttribute("aria-sort") !== "descending" || column === 0 && head.getAttribute("aria-sort") === "ascending";
    const key = row => row.cells[column].dataset.value;
    const number = row => key(row) === "" ? -Infinity : Number(key(row));
    const compare = column ? (a, b) => number(a) < number(b) ? -1 : number(a) > number(b) ? 1 : 0
      : (a, b) => a.cells[0].textContent.localeCompare(b.cells[0].textContent);
    body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
    document.querySelectorAll(".results [aria-sort]").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
}
// Paper has nothing to click on: print the folded tables, too.
const folded = document.querySelectorAll("details:not([open])");
addEventListener("beforeprint", () => folded.forEach(one => (one.open = true)));
addEventListener("afterprint", () => folded.forEach(one => (one.open = false)));
