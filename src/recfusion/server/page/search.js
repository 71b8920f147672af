// The search field (a combobox with a list, by the ARIA pattern) and the history that it fills.
import { count, number, tags } from "./dom.js";
import { add, change, nameOf, remove, state } from "./store.js";
import { similar } from "./list.js";

const { button, div, h2, input, label, li, p, ul } = tags;
const matches = () => (state.query.trim() && state.answers.search?.data?.items || []).filter(({ item }) => !state.history.includes(item));

function onKey(event) {
	const items = matches(), last = items.length - 1;
	const moves = { ArrowDown: state.active < last ? state.active + 1 : 0, ArrowUp: state.active > 0 ? state.active - 1 : last };
	if (event.key in moves && items.length) change({ active: moves[event.key], open: true });
	else if (event.key === "Enter" && items.length) add(items[Math.max(0, state.active)]);
	else if (event.key === "Escape") change(state.open ? { open: false, active: -1 } : { query: "" });
	else return;
	event.preventDefault();
}

function search() {
	const items = matches(), query = state.query.trim(), open = state.open && query !== "";
	return div({ class: "search" },
		label({ for: "query", class: "hidden" }, "Search titles"),
		input({
			id: "query", type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", value: state.query,
			placeholder: `Search ${number(state.model.items)} titles`,
			"aria-expanded": String(open && items.length > 0), "aria-controls": "found", "aria-autocomplete": "list",
			"aria-activedescendant": open && state.active >= 0 && `found-${state.active}`,
			oninput: (event) => change({ query: event.target.value, open: true, active: -1 }),
			onkeydown: onKey,
			onfocus: () => change({ open: true }),
			onblur: () => change({ open: false, active: -1 }),
		}),
		ul({ id: "found", role: "listbox", "aria-label": "Titles found", hidden: !open || !items.length }, open && items.map((one, place) =>
			li({
				key: one.item, id: `found-${place}`, role: "option", "aria-selected": String(place === state.active),
				onmousedown: (event) => event.preventDefault(), // the field keeps the focus
				onclick: () => add(one),
			}, one.name))),
		open && !items.length && state.answers.search?.query === query && p({ class: "found note" }, "No matching title."));
}

export function historyPanel() {
	const unknown = state.history.filter((item) => state.answers.list?.data?.unknown?.includes(item));
	return div({ class: "history" },
		div({ class: "head" }, h2(null, "Your history"),
			state.history.length > 0 && button({ class: "quiet", onclick: () => change({ history: [], similar: "" }, true) }, "Clear")),
		search(),
		state.history.length
			? ul({ class: "entries", "aria-label": count(state.history.length, "item") + " in the history" }, state.history.map((item) =>
					li({ key: item, class: unknown.includes(item) && "unknown" },
						button({ class: "name", title: `Similar to ${nameOf(item)}`, "aria-expanded": String(state.similar === item), onclick: () => change({ similar: state.similar === item ? "" : item }) }, nameOf(item)),
						button({ class: "cross", "aria-label": `Remove ${nameOf(item)} from the history`, onclick: () => remove(item) }, "×"))))
			: p({ class: "note" }, "Add a few items that you like."),
		unknown.length > 0 && p({ class: "note" }, "The model does not know the crossed-out items and ignores them."),
		state.history.includes(state.similar) && similar());
}
