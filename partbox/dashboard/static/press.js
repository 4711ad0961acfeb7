// A press of the pointer, from down to up. Nothing is drawn before its end: else what is pressed slips away under the
// pointer, and the browser tells nobody of the press.

let pressed = false;
const waiting = new Map(); // by the part of the page: its last drawing that was put off

// Draw a part of the page now, or at the end of a press.
export function unlessPressed(part, draw) {
  if (pressed) waiting.set(part, draw);
  else draw();
}

function end() {
  if (!pressed) return;
  pressed = false;
  setTimeout(() => {
    const draws = [...waiting];
    waiting.clear();
    for (const [part, draw] of draws) unlessPressed(part, draw);
  }); // after the click, which the browser tells at once
}

addEventListener("pointerdown", () => (pressed = true), true);
addEventListener("pointerup", end, true);
addEventListener("pointercancel", end, true);
addEventListener("pointermove", ({ buttons }) => buttons || end(), true); // a menu of the browser may keep the end for itself
