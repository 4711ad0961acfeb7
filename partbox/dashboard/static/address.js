// What is shown, as the address says it: it can be shared, and the back button goes back.

const moved = [];

export const place = () => Object.fromEntries(new URLSearchParams(location.search));

// Changes names of the address; "" and null take one out of it.
export function go(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  if (text === new URLSearchParams(location.search).toString()) return;
  history.pushState(null, "", `${location.pathname}${text && `?${text}`}`);
  for (const tell of moved) tell();
}

// `tell` is called whenever the address has changed, by `go` or by the back button.
export const onMove = (tell) => moved.push(tell);

addEventListener("popstate", () => moved.forEach((tell) => tell()));
