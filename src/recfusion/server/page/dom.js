// Elements as records, made by li({ class: "row" }, "text"), and `render`, which updates a node's children to match
// them. Texts are always text nodes, so HTML in a title is shown as text.
const make = (tag) => (props, ...children) => ({
	tag,
	props: props ?? {},
	children: children.flat(4).filter((child) => child !== undefined && child !== null && child !== false && child !== ""),
});
export const tags = new Proxy({}, { get: (_, tag) => make(tag) });

const SVG = new Set(["svg", "path", "circle", "title"]);
const LIVE = new Set(["value", "checked", "open", "disabled", "hidden"]); // properties that people change too
const records = new WeakMap(); // node -> its record

function node(record) {
	if (!record.tag) return document.createTextNode(record);
	return SVG.has(record.tag) ? document.createElementNS("http://www.w3.org/2000/svg", record.tag) : document.createElement(record.tag);
}

function set(at, name, value) {
	if (name.startsWith("on")) at[name] = value ?? null;
	else if (name === "style" && value) for (const [key, text] of Object.entries(value)) at.style.setProperty(key, text);
	else if (LIVE.has(name)) {
		const typing = at.type === "number" && at === document.activeElement; // "1.0" may become "1.05"
		const wanted = value ?? (name === "value" ? "" : false);
		if (!typing && String(at[name]) !== String(wanted)) at[name] = wanted;
	} else if (value === undefined || value === false) at.removeAttribute(name);
	else if (at.getAttribute(name) !== String(value)) at.setAttribute(name, value);
}

// A record reuses the old node with its key, or else the next old node of its tag without a key.
export function render(children, parent) {
	const keyed = new Map(), rest = {};
	for (const child of parent.childNodes) {
		const { key } = records.get(child)?.props ?? {};
		if (key !== undefined) keyed.set(String(key), child);
		else (rest[child.nodeName.toLowerCase()] ??= []).push(child);
	}
	const matched = children.map((record) => {
		const key = record.props?.key;
		const old = key === undefined ? rest[record.tag ?? "#text"]?.shift() : keyed.get(String(key));
		return old?.nodeName.toLowerCase() === (record.tag ?? "#text") ? old : node(record);
	});
	const staying = new Set(matched);
	for (const child of [...parent.childNodes]) if (!staying.has(child)) child.remove();
	matched.forEach((child, place) => {
		if (parent.childNodes[place] !== child) parent.insertBefore(child, parent.childNodes[place] ?? null);
		show(child, children[place]);
	});
}

function show(at, record) {
	if (!record.tag) return void (at.data !== String(record) && (at.data = record));
	const { key: _, value, ...props } = record.props;
	for (const name of Object.keys(records.get(at)?.props ?? {})) if (!(name in record.props)) set(at, name, undefined);
	for (const name of Object.keys(props)) set(at, name, props[name]);
	render(record.children, at);
	if (value !== undefined) set(at, "value", value); // after min, max and a select's options
	records.set(at, record);
}

export const still = matchMedia("(prefers-reduced-motion: reduce)");
export const number = (value, most = 0, least = 0) => Number(value).toLocaleString("en", { minimumFractionDigits: least, maximumFractionDigits: most });
export const count = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
export const listed = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
