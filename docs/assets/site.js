// On the page of options: a box that hides the options without its words.
document.addEventListener("DOMContentLoaded", () => {
  const headings = [...document.querySelectorAll("h3.option")];
  if (headings.length < 10) return;
  const options = headings.map((heading) => {
    const parts = [heading];
    for (let next = heading.nextElementSibling; next && !/^H[1-3]$/.test(next.tagName); next = next.nextElementSibling) {
      parts.push(next);
    }
    const link = document.querySelector(`.md-nav--secondary a[href="#${CSS.escape(heading.id)}"]`);
    return { parts, item: link && link.closest("li"), text: parts.map((part) => part.textContent).join(" ").toLowerCase() };
  });
  const chapters = new Map();
  let chapter = null;
  for (const heading of headings[0].closest("article").querySelectorAll("h2, h3.option")) {
    if (heading.tagName === "H2") chapter = heading;
    else chapters.set(chapter, [...(chapters.get(chapter) || []), heading]);
  }
  const box = document.createElement("input");
  box.type = "search";
  box.className = "option-filter";
  box.placeholder = `Filter ${options.length} options: timeout, sasl, key ...`;
  box.setAttribute("aria-label", "Filter the options");
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { parts, item, text } of options) {
      const hidden = !words.every((word) => text.includes(word));
      for (const part of item ? [...parts, item] : parts) part.hidden = hidden;
    }
    for (const [chapter, of] of chapters) chapter.hidden = of.every((heading) => heading.hidden);
  });
  headings[0].closest("article").querySelector("h2").before(box);
});
