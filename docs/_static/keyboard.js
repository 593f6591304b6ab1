// Code, tables and formulas that scroll sideways can be scrolled with the keyboard.
const scrolling = "pre, .table-wrapper, .formula, .sig";
const update = () => {
  for (const element of document.querySelectorAll(scrolling)) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  }
};
addEventListener("load", update);
addEventListener("resize", update);
