// The state of the page and its form in the URL fragment, which reaches no server.
import { atRest, sane, turned } from "./settings.js";

export const VIEWS = { list: "List", compare: "Compare", complete: "Complete", steps: "Steps", model: "Model" };
const LIMITS = { k: [1, 100], n: [1, 12], together: [0, 1], seed: [0, 1e6] };
const fresh = () => ({ view: "list", shelf: [], hidden: [], now: atRest(), kept: atRest(), similar: "", k: 20, n: 4, together: 0.25, seed: 0 });

export const state = {
	...fresh(),
	names: {}, // what people call the items, by id
	model: null, // what the service says of itself
	failed: "", // or why it does not
	answers: {}, // by purpose: { asked, key, data, error, ms }; `asked` is ahead while a question is open
	query: "", open: false, active: -1, // the search field
	brush: "more", sheet: false, told: "", step: 0,
};

let listener = () => {};
export const onChange = (call) => (listener = call);

// `back`: whether the state before is a place to come back to.
export function change(patch, back = false) {
	Object.assign(state, patch);
	listener();
	clearTimeout(pending);
	if (back) save("pushState");
	else pending = setTimeout(save, 250, "replaceState"); // browsers allow only so many
}
let pending;
function save(how) {
	if ((location.hash || "#") !== fragment()) history[how](null, "", fragment());
}

export const turn = (patch, back) => change({ now: { ...state.now, ...patch } }, back);
export function name(items) {
	for (const one of items) state.names[one.item] = one.name;
}
export function add(...items) {
	name(items);
	const shelf = [...new Set([...state.shelf, ...items.map(({ item }) => item)])];
	change({ shelf, similar: shelf.includes(state.similar) ? "" : state.similar, query: "", open: false, active: -1 }, true);
}
export const remove = (item) =>
	change({ shelf: state.shelf.filter((other) => other !== item), similar: state.similar === item ? "" : state.similar }, true);
export const nameOf = (item) => state.names[item] ?? item;

export function fragment(changes = {}) {
	const shown = { ...state, ...changes }, rest = fresh(), params = new URLSearchParams();
	for (const name of ["shelf", "hidden"]) for (const item of shown[name]) params.append(name, item);
	for (const name of ["now", "kept"]) if (Object.keys(turned(shown[name])).length) params.set(name, JSON.stringify(turned(shown[name])));
	for (const name of ["view", "similar", ...Object.keys(LIMITS)]) if (shown[name] !== rest[name]) params.set(name, shown[name]);
	return "#" + params;
}

export function read() {
	const params = new URLSearchParams(location.hash.slice(1)), found = fresh();
	if (params.get("view") in VIEWS) found.view = params.get("view");
	for (const name of ["shelf", "hidden"]) found[name] = [...new Set(params.getAll(name))].filter(Boolean).slice(0, 500);
	for (const name of ["now", "kept"]) {
		try {
			found[name] = sane(JSON.parse(params.get(name)));
		} catch {} // a link that was cut: at rest
	}
	found.similar = params.get("similar") ?? "";
	for (const [name, [least, most]] of Object.entries(LIMITS)) {
		const value = Number(params.get(name) ?? NaN);
		if (value >= least && value <= most) found[name] = name === "together" ? value : Math.round(value);
	}
	Object.assign(state, found);
}
