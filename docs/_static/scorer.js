// Ranks search results: titles and API names that match the query come before pages that mention it.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, , , score]) => {
    const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
    const query = words(new URLSearchParams(location.search).get("q") ?? "");
    const name = words(title.split(" > ").pop().split(".").pop());
    const matched = query.filter((word) => name.includes(word)).length;
    if (!query.length || matched < query.length) return score;
    const whole = name.length === query.length;
    return score + (whole ? 100 : 50) + (page.startsWith("tutorials/") ? 10 : 0);
  },
};
