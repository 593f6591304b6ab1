// Code, tables and formulas that scroll sideways can be scrolled with the keyboard.
const updateScrolling = () => {
  for (const element of document.querySelectorAll("pre, .table-wrapper, .formula")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  }
};

// What Sphinx and the theme leave out for screen readers.
const nameParts = () => {
  for (const caption of document.querySelectorAll("[role=heading]:not([aria-level])"))
    caption.setAttribute("aria-level", "2");
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  // The arguments of a signature are a list of descriptions without terms.
  for (const list of document.querySelectorAll("dt.sig dl"))
    list.outerHTML = list.outerHTML.replaceAll(/<(\/?)d[ld]\b/g, "<$1div");
  if (!document.querySelector("h1"))
    document.querySelector("article")?.insertAdjacentHTML("afterbegin", `<h1>${document.title.split(" - ")[0]}</h1>`);
};

addEventListener("DOMContentLoaded", nameParts);
addEventListener("load", updateScrolling);
addEventListener("resize", updateScrolling);
