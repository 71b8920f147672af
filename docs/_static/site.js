// Wide tables and outputs scroll: make them reachable by keyboard. The theme's sidebar leaves some summaries without a name.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".bd-article table, .output, math")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  if (navigator.clipboard) for (const pre of document.querySelectorAll(".bd-article .highlight pre")) addCopyButton(pre);
  for (const summary of document.querySelectorAll("summary")) if (!summary.textContent.trim()) summary.setAttribute("aria-label", "show pages");
});

// Of a console block, only the commands are copied, without prompts.
function addCopyButton(pre) {
  const button = Object.assign(document.createElement("button"), {type: "button", className: "copy", textContent: "Copy"});
  const text = pre.textContent;
  button.addEventListener("click", async () => {
    const commands = text.split("\n").filter((line) => /^[$>] /.test(line)).map((line) => line.slice(2)).join("\n");
    await navigator.clipboard.writeText(pre.closest(".highlight-console") ? commands : text);
    button.textContent = "Copied";
  });
  pre.after(button);
}
