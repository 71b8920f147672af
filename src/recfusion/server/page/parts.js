// Elements that several views share.
import { tags } from "./dom.js";
import { add } from "./store.js";
import { endWords, position } from "./settings.js";

const { article, button, div, h2, input, label, p, span } = tags;

// The columns of the item table in at most two lines: short values first, addresses of pages and pictures not at all.
const ADDRESS = /^(https?:|data:|\/\/)|^\S+\.(avif|gif|jpe?g|png|svg|webp)(\?\S*)?$/i;
const SHORT = 60;
export function about({ name, columns }) {
	const words = Object.entries(columns ?? {})
		.filter(([, value]) => value !== null && value !== "" && value !== name && !ADDRESS.test(value))
		.map(([key, value]) => (typeof value === "string" ? value.replaceAll("|", " · ") : value === true ? key : value === false ? "" : `${key} ${value}`))
		.filter(Boolean);
	const text = [...words.filter(({ length }) => length <= SHORT), ...words.filter(({ length }) => length > SHORT)].join(" · ");
	return p({ class: "about", dir: "auto", title: text.length > 2 * SHORT && text.slice(0, 1000) }, text.slice(0, 300));
}

export const iconButton = (sign, words, onclick, more) =>
	button({ class: "act", "aria-label": words, title: words, onclick, ...more }, sign);
export const addButton = (one, more) => iconButton("+", `Add ${one.name} to the history`, () => add(one), more);
export const addChip = (one) =>
	button({ key: one.item, class: "chip", "aria-label": `Add ${one.name} to the history`, onclick: () => add(one) }, span({ class: "sign" }, "+"), span({ dir: "auto" }, one.name));
// A view: its name, its title, a sentence, and its contents.
export const view = (name, title, lead, ...rest) => article({ class: name, "aria-label": title }, h2(null, title), lead && p({ class: "lead" }, lead), rest);
export const screenReaderOnly = (words) => span({ class: "hidden" }, words);
export const textButton = (words, onclick) => button({ class: "plain", onclick }, words);
export const alertBox = (error) => error && p({ class: "error", role: "alert" }, error);

export const track = (from, to) => ({ "--from": `${100 * from}%`, "--to": `${100 * to}%` });

// A slider of a control, filled from the default value; a double click goes back to it.
export function slider({ id, title, help, low, high, min = 0, max = 1, default: start = min, step, value, set }) {
	const control = { low, high, min, max, default: start }, place = (at) => (at - min) / (max - min);
	const words = step === 1 ? value : value === start ? "default" : `${Math.round(100 * position(control, value))} % towards ${endWords(control, value)}`;
	return div({ class: "slider", key: id },
		label({ for: id, title: help ?? false }, title),
		input({
			id, type: "range", min, max, step: step ?? Math.max(max - start, start - min) / 20, value, "aria-valuetext": words,
			style: track(place(Math.min(value, start)), place(Math.max(value, start))),
			oninput: (event) => set(Number(event.target.value)),
			ondblclick: () => set(start),
		}),
		div({ class: "ends", "aria-hidden": "true" }, span(null, low), span(null, high)));
}
