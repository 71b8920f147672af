// The state of the page and its form in the URL fragment, which reaches no server and can be sent to a colleague.
import { atRest, sane, turned } from "./settings.js";

export const VIEWS = ["list", "compare", "complete", "steps", "model"];
const FRESH = () => ({ view: "list", shelf: [], hidden: [], now: atRest(), kept: atRest(), similar: "", k: 20, n: 4, together: 0.25 });

export const state = {
  ...FRESH(),
  names: {}, // what people call the items, by id
  model: null, // what the service says of itself
  answers: {}, // by purpose: { key, data, error, ms }
  query: "", open: false, active: -1, // the search field
  brush: "more", sheet: false, wide: {}, told: "", step: 0, failed: "",
};

let listener = () => {};
export const onChange = (call) => (listener = call);

// `history`: whether the change is a place to come back to; sliders only rewrite the place where one is.
export function change(patch, { history = false } = {}) {
  Object.assign(state, patch);
  listener();
  write(history);
}

export const turn = (patch, options) => change({ now: { ...state.now, ...patch } }, options);

export function add(item, name) {
  if (state.shelf.includes(item)) return;
  state.names[item] = name;
  change({ shelf: [...state.shelf, item], similar: state.similar === item ? "" : state.similar, step: 0 }, { history: true });
}
export function remove(item) {
  const similar = state.similar === item ? "" : state.similar;
  change({ shelf: state.shelf.filter((other) => other !== item), similar, step: 0 }, { history: true });
}

export function fragment(changes = {}) {
  const shown = { ...state, ...changes }, fresh = FRESH(), params = new URLSearchParams();
  if (shown.view !== "list") params.set("view", shown.view);
  for (const name of ["shelf", "hidden"]) for (const item of shown[name]) params.append(name, item);
  for (const name of ["now", "kept"]) if (Object.keys(turned(shown[name])).length) params.set(name, JSON.stringify(turned(shown[name])));
  for (const name of ["similar", "k", "n", "together"]) if (shown[name] !== fresh[name]) params.set(name, shown[name]);
  return "#" + params;
}

export function read() {
  const params = new URLSearchParams(location.hash.slice(1)), found = FRESH();
  if (VIEWS.includes(params.get("view"))) found.view = params.get("view");
  for (const name of ["shelf", "hidden"]) found[name] = [...new Set(params.getAll(name))].slice(0, 500);
  for (const name of ["now", "kept"]) {
    try {
      found[name] = sane(JSON.parse(params.get(name)));
    } catch {
      found[name] = atRest();
    }
  }
  found.similar = params.get("similar") ?? "";
  const within = (name, least, most) => {
    const value = Number(params.get(name) ?? NaN);
    if (value >= least && value <= most) found[name] = value;
  };
  within("k", 1, 100);
  within("n", 1, 12);
  within("together", 0, 1);
  Object.assign(state, found);
}

let pending;
function write(history) {
  clearTimeout(pending);
  const save = () => {
    if (location.hash !== fragment() && (location.hash || fragment() !== "#"))
      window.history[history ? "pushState" : "replaceState"](null, "", fragment());
  };
  if (history) save();
  else pending = setTimeout(save, 250); // browsers allow only so many changes of the address
}
