// The search field (a combobox with a list, by the ARIA pattern) and the history that it fills.
import { count, listed, number, tags } from "./dom.js";
import { add, change, isCurrent, nameOf, remove, state } from "./store.js";
import { colourOf, similar } from "./list.js";

const { button, div, h2, input, label, li, p, span, ul } = tags;
const failed = () => isCurrent("search") && state.answers.search?.error;
const answered = () => (state.query.trim() && !failed() && state.answers.search?.data?.items) || [];
export const matches = () => answered().filter(({ item }) => !state.history.includes(item));

function onKey(event) {
	const items = matches(), last = items.length - 1;
	const moves = { ArrowDown: state.active < last ? state.active + 1 : 0, ArrowUp: state.active > 0 ? state.active - 1 : last };
	if (event.key in moves && items.length) change({ active: moves[event.key], open: true });
	else if (event.key === "Enter" && state.active >= 0 && state.active <= last) add(items[state.active]);
	else if (event.key === "Enter" && !isCurrent("search")) change({ entered: true }); // the titles shown are those of an earlier query
	else if (event.key === "Enter" && items.length) add(items[0]);
	else if (event.key === "Escape") change({ entered: false, ...(state.open ? { open: false, active: -1 } : { query: "" }) });
	else return;
	event.preventDefault();
}

function search() {
	const items = matches(), open = state.open && state.query.trim() !== "", current = isCurrent("search"), error = failed();
	const words = error ? `The search failed. ${error}` : !current ? "Searching …" : answered().length ? "It is in your history." : "No matching title.";
	return div({ class: "search" },
		label({ for: "query", class: "hidden" }, "Search titles"),
		input({
			id: "query", type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", value: state.query,
			placeholder: `Search ${number(state.model.items)} titles`,
			"aria-expanded": String(open && items.length > 0), "aria-controls": "found", "aria-autocomplete": "list",
			"aria-activedescendant": open && state.active >= 0 && `found-${state.active}`,
			oninput: (event) => change({ query: event.target.value, open: true, active: -1, entered: false }),
			onkeydown: onKey,
			onfocus: () => change({ open: true }),
			onblur: () => change({ open: false, active: -1, entered: false }),
		}),
		ul({ id: "found", role: "listbox", class: !current && "older", "aria-label": "Titles found", hidden: !open || !items.length }, open && items.map((one, place) =>
			li({
				key: one.item, id: `found-${place}`, role: "option", "aria-selected": String(place === state.active),
				onmousedown: (event) => event.preventDefault(), // the field keeps the focus
				onclick: () => add(one), dir: "auto",
			}, one.name))),
		open && !items.length && p({ class: "found note" }, words));
}

// Three histories to start with, and one by chance.
function starts() {
	const found = (purpose) => state.answers[purpose]?.data?.examples ?? [], start = (items) => () => (state.luck++, add(...items));
	const words = (items) => items.map(({ name }) => name);
	return div({ class: "starts" },
		p({ class: "note" }, "Add a few items that you like", found("examples").length > 0 && ", or start with an example:"),
		found("examples").map(({ items }, n) => button({ key: n, class: "plain", dir: "auto", "aria-label": `Start with ${listed(words(items))}`, onclick: start(items) }, span(null, words(items).join(" · ")))),
		found("surprise").map(({ items }) => button({ key: "luck", class: "plain luck", onclick: start(items) }, "Surprise me")));
}

export function historyPanel() {
	const unknown = state.history.filter((item) => state.answers.list?.data?.unknown?.includes(item));
	return div({ class: "history" },
		div({ class: "head" }, h2(null, "Your history"),
			state.history.length > 0 && button({ class: "quiet", "data-spot": "clear-0", onclick: () => change({ history: [], similar: "" }, true) }, "Clear")),
		search(),
		state.history.length
			? ul({ class: "entries", "aria-label": count(state.history.length, "item") + " in the history" }, state.history.map((item, n) =>
					li({ key: item, class: unknown.includes(item) ? "unknown" : ["list", "map"].includes(state.view) && "of", style: { "--colour": `var(${colourOf(item)})` } },
						button({ class: "name", dir: "auto", "data-spot": `entry-${n}`, title: `Similar to ${nameOf(item)}`, "aria-expanded": String(state.similar === item), onclick: () => change({ similar: state.similar === item ? "" : item }) }, nameOf(item)),
						button({ class: "cross", "data-spot": `remove-${n}`, "aria-label": `Remove ${nameOf(item)} from the history`, onclick: () => remove(item) }, "×"))))
			: starts(),
		unknown.length > 0 && p({ class: "note" }, "The model does not know the crossed-out items and ignores them."),
		state.history.includes(state.similar) && similar());
}
