// Why an item is not in the list, and what would bring it in.
import { count, listed, number, tags } from "./dom.js";
import { add, change, changeCurrent, isCurrent, nameOf, rememberNames, state } from "./store.js";
import { noFilters, noReranking, sliders } from "./settings.js";
import { alertBox, textButton } from "./parts.js";

const { b, button, details, div, input, label, li, p, section, span, summary, ul } = tags;
const FIELDS = { where: "a filter", allow: "the allowed items", deny: "the hidden items", at_most: "the limit for each value", reranking: "the re-ranking", again: "your history, which has it already", history: "your history, which has it returned or disliked" };

const reasonWords = (reasons) => listed(reasons.map(({ text, items }) => (items.length ? text : sliders().find(({ name }) => name === text)?.title ?? text)));

// The button that applies a remedy, if the page can.
function apply({ field, items, rank }) {
	if (items.length) return textButton(`Add ${nameOf(items[0])}`, () => add(...items.map((item) => ({ item, name: nameOf(item) }))));
	if (field === "k" && rank <= 100) return textButton(`Show ${rank} items`, () => change({ k: rank }, true));
	if (field === "reranking") return textButton("Reset re-ranking", () => changeCurrent(noReranking(), true));
	if (field === "where") return textButton("Remove the filters", () => changeCurrent(noFilters(), true));
	if (field === "deny") return textButton("Show hidden items", () => change({ hidden: [] }, true));
	return false;
}

function answer() {
	const { data, error, sent } = state.answers.whynot ?? {};
	if (error || !data || sent?.item !== state.whynot || !isCurrent("whynot")) return error ? alertBox(error) : p({ class: "note" }, "Loading …");
	const { name, listed: isListed, rank, excluded_by: fields, supporting, opposing, remedies } = data.decision;
	const verdict = isListed ? `It is in the list, at rank ${number(rank)}.` : fields.length ? `It is left out by ${listed(fields.map((field) => FIELDS[field] ?? field))}.` : `It has rank ${number(rank)}, and the list has ${count(state.k, "place")}.`;
	for (const { items, text } of remedies) if (items.length) rememberNames(items.map((item) => ({ item, name: text.replace(/^with (.*) in the history$/, "$1") })));
	return section({ class: "similar decision", "aria-label": `Why not ${name}` },
		div({ class: "head" }, b({ dir: "auto" }, name), button({ class: "cross", "aria-label": "Close", "data-spot": "whynot-close", onclick: () => change({ whynot: "" }) }, "×")),
		p(null, verdict),
		supporting.length > 0 && p(null, span({ class: "sign right" }, "+"), `for it: ${reasonWords(supporting)}`),
		opposing.length > 0 && p(null, span({ class: "sign less" }, "−"), `against it: ${reasonWords(opposing)}`),
		!supporting.length && !opposing.length && !isListed && !fields.length && p(null, "Nothing in your history speaks for it or against it."),
		remedies.length > 0 && [p(null, "What would change its rank:"), ul(null, remedies.map((one) => li({ key: one.text, class: "remedy" }, span({ dir: "auto" }, `${one.text}: rank ${number(one.rank)}`), apply(one))))]);
}

// The part below the list: a field for a title, the titles found, and the answer for one of them.
export function whyNot() {
	const found = (state.seek.trim() && state.answers.seek?.data?.items) || [], shown = state.answers.list?.data?.items.map(({ item }) => item) ?? [];
	return details({ class: "whynot", open: state.asking, ontoggle: ({ target }) => target.open !== state.asking && change({ asking: target.open }) },
		summary(null, "Why is an item not in the list?"),
		state.asking && [
			label(null, "Its title ", input({ id: "seek", type: "text", value: state.seek, autocomplete: "off", maxlength: 200, oninput: ({ target }) => change({ seek: target.value, whynot: "" }) })),
			!state.whynot && found.length > 0 && ul({ class: "chips", "aria-label": "Titles found" }, found.map((one) => li({ key: one.item }, button({ class: "chip", onclick: () => (rememberNames([one]), change({ whynot: one.item })) }, span({ dir: "auto" }, one.name), shown.includes(one.item) && span({ class: "note" }, " in the list"))))),
			!state.whynot && state.seek.trim() && isCurrent("seek") && !found.length && p({ class: "note" }, "No matching title."),
			state.whynot && answer()]);
}
