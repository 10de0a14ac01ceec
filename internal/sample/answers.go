package sample

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const maxSources = 3

// answerTo answers a visitor's message from the documents of the workspace. It quotes the passage
// that fits best and names up to three documents, the quoted one first. If nothing fits, it answers
// that in the visitor's language. If the search fails, the request fails, and neither message nor
// answer is stored.
func (b *Backend) answerTo(r *request, said sqlite.Message) (sqlite.Message, error) {
	reply := sqlite.Message{ID: newID("msg"), Author: sqlite.Assistant, Created: said.Created}
	found, err := b.db.Search(r.Context(), r.session.Workspace, said.Text, maxSources)
	if err != nil {
		return reply, fmt.Errorf("search the documents: %w", err)
	}
	if len(found.Documents) == 0 {
		language := b.languages.Language(r.Header.Values("Accept-Language"))
		r.w.Header().Set("Content-Language", language)
		r.w.Header().Add("Vary", "Accept-Language")
		reply.Text = nothingFits[language]
		return reply, nil
	}
	for _, d := range found.Documents {
		reply.Sources = append(reply.Sources, sqlite.Source{Title: d.Title, URL: d.URL})
	}
	best := found.Documents[0]
	reply.Text = quote(passage(best.Text, found.Weights), best.Title)
	return reply, nil
}

// quote returns a passage and its source without words of any language. The title is a paragraph of
// its own, so that right-to-left text or an unclosed embedding in the passage ends with its line.
// Unicode isolates would protect only from text that closes its own embeddings.
func quote(passage, title string) string {
	if passage == "" { // the page has no text
		return title
	}
	return "“" + passage + "”\n— " + strings.TrimSpace(title)
}

// nothingFits is the answer to a question that no document fits, in the languages of the 429.
var nothingFits = map[string]string{
	"en": "I found nothing about that in our pages.",
	"de": "Dazu habe ich auf unseren Seiten nichts gefunden.",
	"es": "No he encontrado nada sobre eso en nuestras páginas.",
	"fr": "Je n’ai rien trouvé à ce sujet dans nos pages.",
	"it": "Non ho trovato nulla al riguardo nelle nostre pagine.",
	"ja": "当サイトのページには、それについての情報が見つかりませんでした。",
	"nl": "Daarover heb ik op onze pagina’s niets gevonden.",
	"pl": "Na naszych stronach nie ma nic na ten temat.",
	"pt": "Não encontrei nada sobre isso em nossas páginas.",
	"tr": "Sayfalarımızda bununla ilgili bir şey bulamadım.",
	"uk": "На наших сторінках нічого про це не знайдено.",
	"zh": "在我们的页面中没有找到相关内容。",
	"ar": "لم أجد شيئًا عن ذلك في صفحاتنا.",
}
