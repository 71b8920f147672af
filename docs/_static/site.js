// Wide tables and outputs scroll: make them reachable by keyboard. The theme's sidebar leaves some summaries without a name.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".bd-article table, .output, math")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  for (const summary of document.querySelectorAll("summary")) if (!summary.textContent.trim()) summary.setAttribute("aria-label", "show pages");
});
