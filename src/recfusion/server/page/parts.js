// Elements that several views share.
import { number, tags } from "./dom.js";
import { add, state } from "./store.js";
import { endWords, position } from "./settings.js";

const { title: titleOf } = tags;
const { article, button, div, h2, img, input, label, p, path, span, strong, svg } = tags;

// The picture of an item, if the service allows its origin; a missing one leaves no gap.
function picture({ columns, item }) {
	const { roles, image_origins: origins } = state.model, address = columns?.[roles.image];
	if (typeof address !== "string" || !origins.some((origin) => address.startsWith(`${origin}/`))) return false;
	return img({ key: `picture ${item}`, class: "picture", src: address, alt: "", loading: "lazy", decoding: "async", referrerpolicy: "no-referrer", onerror: ({ target }) => target.classList.add("lost") });
}
const price = ({ columns }) => {
	const value = columns?.[state.model.roles.price];
	return typeof value === "number" && span({ class: "price" }, number(value, 10, Number.isInteger(value) ? 0 : 2));
};

// The other columns of the item table in at most two lines: short values first, addresses of pages and pictures not at all.
const ADDRESS = /^(https?:|data:|\/\/)|^\S+\.(avif|gif|jpe?g|png|svg|webp)(\?\S*)?$/i;
const SHORT = 60;
function about({ name, columns }) {
	const { title, image, link, price, text: long } = state.model.roles, apart = [title, image, link, price, long];
	const words = Object.entries(columns ?? {})
		.filter(([key, value]) => !apart.includes(key) && value !== null && value !== "" && value !== name && !ADDRESS.test(value))
		.map(([key, value]) => (typeof value === "string" ? value.replaceAll("|", " · ") : value === true ? key : value === false ? "" : `${key} ${value}`))
		.filter(Boolean);
	const text = [...words.filter(({ length }) => length <= SHORT), ...words.filter(({ length }) => length > SHORT), columns?.[long]].filter(Boolean).join(" · ");
	return p({ class: "about", dir: "auto", title: text.length > 2 * SHORT && text.slice(0, 1000) }, text.slice(0, 300));
}

// An item with its picture, title, price and other columns.
export const described = (one) => div({ class: "what" }, picture(one), div(null, strong({ dir: "auto" }, one.name), price(one), about(one)));

export const iconButton = (sign, words, onclick, more) =>
	button({ class: "act", "aria-label": words, title: words, onclick, ...more }, sign);
export const addButton = (one, more) => iconButton("+", `Add ${one.name} to the history`, () => add(one), more);
export const addChip = (one) =>
	button({ key: one.item, class: "chip", "aria-label": `Add ${one.name} to the history`, onclick: () => add(one) }, span({ class: "sign" }, "+"), span({ dir: "auto" }, one.name));
// A view: name, title, sentence, contents.
export const view = (name, title, lead, ...rest) => article({ class: name, "aria-label": title }, h2(null, title), lead && p({ class: "lead" }, lead), rest);
export const screenReaderOnly = (words) => span({ class: "hidden" }, words);
export const textButton = (words, onclick) => button({ class: "plain", onclick }, words);
// Without the names of fields, which only programs use.
export const alertBox = (error) => error && p({ class: "error", role: "alert" }, error.replace(/ \([a-z]+ removes .*?\)/, ""));

export const track = (from, to) => ({ "--from": `${100 * from}%`, "--to": `${100 * to}%` });

// The curve under a slider: the NDCG at each position as a share of that at the default.
function curve(points, { title, min, max, default: start }) {
	const base = points?.find(({ at }) => at === start)?.ndcg;
	if (!base) return false;
	const at = (value) => 4 + (92 * (value - min)) / (max - min), share = (ndcg) => Math.round((100 * ndcg) / base), down = (ndcg) => 17 - 15 * Math.min(1, ndcg / base);
	const line = points.map(({ at: value, ndcg }, n) => `${n ? "L" : "M"}${at(value).toFixed(1)} ${down(ndcg).toFixed(1)}`).join("");
	const words = points.filter(({ at: value }) => value === min || value === max).filter(({ at: value }) => value !== start).map(({ at: value, ndcg, popularity }) => `at ${value} lists are ${share(ndcg)} % as accurate (NDCG), median popularity ${number(popularity)}`);
	return svg({ class: "curve", viewBox: "0 0 100 18", preserveAspectRatio: "none", role: "img", "aria-label": `Cost of ${title}: ${words.join("; ")}` }, titleOf(null, `${words.join("; ")}. Measured at training.`), path({ class: "area", d: `${line}L${at(max)} 18L${at(min)} 18Z` }), path({ d: line }));
}

// A slider of a control, filled from the default value; a double click goes back to it.
export function slider({ id, title, help, costs, low, high, min = 0, max = 1, default: start = min, step, value, set }) {
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
		curve(costs, { title, ...control }),
		div({ class: "ends", "aria-hidden": "true" }, span(null, low), span(null, high)));
}
