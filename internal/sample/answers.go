package sample

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const mostSources = 3

// answerTo answers what a visitor said from the documents of the session's workspace: it quotes the passage that fits
// best, and names up to three documents, the quoted one first. Where nothing fits it says so, in the visitor's language.
// Where the search fails so does the request: neither message nor answer is stored, and the caller is told.
func (b *Backend) answerTo(r *request, said sqlite.Message) (sqlite.Message, error) {
	reply := sqlite.Message{ID: newID("msg"), Author: sqlite.Assistant, Created: said.Created}
	found, err := b.db.Search(r.Context(), r.session.Workspace, said.Text, mostSources)
	if err != nil {
		return reply, fmt.Errorf("search the documents: %w", err)
	}
	if len(found.Documents) == 0 {
		language := b.speaks.Language(r.Header.Values("Accept-Language"))
		r.w.Header().Set("Content-Language", language)
		r.w.Header().Add("Vary", "Accept-Language")
		reply.Text = nothingFits[language]
		return reply, nil
	}
	for _, d := range found.Documents {
		reply.Sources = append(reply.Sources, sqlite.Source{Title: d.Title, URL: d.URL})
	}
	best := found.Documents[0]
	reply.Text = quote(passage(best.Text, found.Worth), best.Title)
	return reply, nil
}

// quote is a passage and where it is from, in no language at all. The title is in a paragraph of its own, so that text
// which runs the other way, or leaves an embedding open, ends with the line: isolates would be as good only around text
// that closes its own.
func quote(passage, title string) string {
	if passage == "" { // a page without a text
		return title
	}
	return "“" + passage + "”\n— " + strings.TrimSpace(title)
}

// nothingFits is what is said where no document does, in the languages of the 429 (D20).
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
