// A press of the pointer, from down to up. What moves the page waits for its end: else what is pressed slips away under
// the pointer, and the browser tells nobody of the press.

let pressed = false;
let waiting = null; // the last that was put off

// Draw now, or at the end of a press; of several that wait only the last is drawn.
export function unlessPressed(draw) {
  waiting = pressed ? draw : null;
  if (!pressed) draw();
}

function end() {
  if (!pressed) return;
  pressed = false;
  setTimeout(() => {
    const draw = waiting;
    waiting = null;
    if (draw) unlessPressed(draw);
  }); // after the click, which the browser tells at once
}

addEventListener("pointerdown", () => (pressed = true), true);
addEventListener("pointerup", end, true);
addEventListener("pointercancel", end, true);
addEventListener("pointermove", ({ buttons }) => buttons || end(), true); // a menu of the browser may keep the end for itself
