"use strict";
// All of the page works without this: numbers open their box when they are pressed. With it they also do under the mouse.
for (const button of document.querySelectorAll("button[popovertarget]")) {
  const box = document.getElementById(button.getAttribute("popovertarget"));
  if (!box || !box.showPopover) continue;
  let timer = 0, pressed = false;
  button.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse") return;
    timer = setTimeout(() => { if (!box.matches(":popover-open")) box.showPopover({ source: button }); }, 150);
  });
  button.addEventListener("pointerleave", (event) => {
    clearTimeout(timer);
    if (event.pointerType === "mouse" && !pressed && box.matches(":popover-open")) box.hidePopover();
  });
  button.addEventListener("click", (event) => {
    clearTimeout(timer);
    const shown = box.matches(":popover-open");
    if (shown && !pressed) event.preventDefault(); // the mouse has opened it already: pressing makes it stay
    pressed = !(shown && pressed);
  });
  box.addEventListener("toggle", (event) => { if (event.newState === "closed") pressed = false; });
}
