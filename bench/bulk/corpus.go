package main

import (
	"fmt"
	"math/rand"
	"strings"
)

// A document is one item of PUT /v1/wp/documents.
type document struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	URL   string `json:"url"`
	Text  string `json:"text"`
}

// A language is artificial: its words are syllables of its script with natural frequencies (Zipf).
// The most frequent are the real words that its questions consist of.
type language struct {
	common    string
	syllables string
	space     string
	stop      string
	ranks     *rand.Zipf
	words     []string
}

// languages are the languages of the documents, in turn.
var languages = []language{
	{common: "the of and to a in is how do I get you for on that with are this my can", syllables: "ba ren ti ship ro car de li ver man ple sto ing er ment shop tra con pri der", space: " ", stop: ". "},
	{common: "der die und in den von zu das mit sich des auf für ist im dem nicht wie ich ein", syllables: "lie fer ung be stell kauf haus schau ver sand rück gabe zeit preis stadt grö ßen wär tig ler", space: " ", stop: ". "},
	{common: "de la que el en y a los del se las por un para con cómo una su al lo", syllables: "pe di do com pra en ví o ga ran tí a de vol ción tien da pre cio ta ño", space: " ", stop: ". "},
	{common: "ve bir bu da için ne nasıl ile çok de daha mi gibi var ama o ben kadar en şu", syllables: "si pa riş ka rgo ia de ür ün ma ğa za öd eme gö nde rim fi yat la", space: " ", stop: ". "},
	{common: "и в не на я что как с это по но из к у за от так же для мы", syllables: "до ста вка за каз воз врат то вар ма га зин це на оп ла та га ран тия", space: " ", stop: ". "},
	{common: "في من على أن إلى عن مع هذا كيف التي هل ما لا كل بعد هو ذلك أو قد كان", syllables: "شح ن طل ب من تج دف ع است رد اد سع ر مت جر ضم ان", space: " ", stop: ". "},
	{common: "के में है की से को का और कैसे पर यह हैं कि ने भी एक हम जो तो कर", syllables: "वा प सी डि ली व री की मत दु का न भु ग ता न ग्रा ह क", space: " ", stop: "। "},
	{common: "的 了 是 我 在 有 怎么 什么 可以 和 就 不 人 都 一个 上 也 很 到 说", syllables: "退 货 款 配 送 价 格 商 品 店 营 业 支 付 订 单 保 修 客 服 运 费 尺 寸 颜 色", space: "", stop: "。"},
	{common: "の に は を た が で て と し れ さ ある いる も する から な こと として", syllables: "返 品 配 送 カー ド 注 文 料 金 店 舗 営 業 サイ ズ 保 証 支 払 い 商 会 員 メール", space: "", stop: "。"},
}

// A corpus generates documents and questions, the same ones for the same seed, page by page.
type corpus struct {
	random    *rand.Rand
	languages []language
	some      []string // words of each hundredth document, for questions about it
}

// vocabulary is the number of different words of each language.
const vocabulary = 30_000

func newCorpus(seed int64) *corpus {
	c := &corpus{random: rand.New(rand.NewSource(seed))}
	for _, l := range languages {
		l.words = strings.Fields(l.common)
		syllables := strings.Fields(l.syllables)
		for len(l.words) < vocabulary {
			word := ""
			for range 2 + c.random.Intn(3) {
				word += syllables[c.random.Intn(len(syllables))]
			}
			l.words = append(l.words, word)
		}
		l.ranks = rand.NewZipf(c.random, 1.07, 4, vocabulary-1)
		c.languages = append(c.languages, l)
	}
	return c
}

func (l *language) word() string { return l.words[l.ranks.Uint64()] }

func (c *corpus) page(from, n int) (page []document) {
	for i := from; i < from+n; i++ {
		l := &c.languages[i%len(c.languages)]
		title := c.sentence(l, 3+c.random.Intn(4))
		var text strings.Builder
		for size := 1000 + c.random.Intn(1800); text.Len() < size; {
			text.WriteString(c.sentence(l, 6+c.random.Intn(14)))
			text.WriteString(l.stop)
			if c.random.Intn(6) == 0 {
				text.WriteString("\n\n")
			}
		}
		id := fmt.Sprintf("page-%06d", i)
		page = append(page, document{id, title, "https://shop.example/" + id, text.String()})
		if i%100 == 0 {
			c.some = append(c.some, title, c.piece(l, text.String()))
		}
	}
	return page
}

func (c *corpus) sentence(l *language, n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = l.word()
	}
	return strings.Join(words, l.space)
}

// piece returns a sentence of text, or its beginning.
func (c *corpus) piece(l *language, text string) string {
	all := strings.Split(text, l.stop)
	piece := []rune(all[c.random.Intn(len(all))])
	return string(piece[:min(len(piece), 80)])
}

// questions returns questions of visitors: mostly words of a page, some only the commonest words,
// some words of no page, and some that are far too long.
func (c *corpus) questions(n, documents int) (all []string) {
	for i := range n {
		l := &c.languages[i%len(c.languages)]
		about := c.some[c.random.Intn(len(c.some))]
		switch c.random.Intn(20) {
		case 0, 1:
			all = append(all, strings.Join(l.words[:12], l.space))
		case 2, 3: // the commonest meaningful words
			all = append(all, strings.Join(l.words[20:20+1+c.random.Intn(8)], l.space))
		case 4:
			all = append(all, fmt.Sprintf("zyx%dq wvu%dq?", i, documents+i))
		case 5:
			long := ""
			for len(long) < 7_000 {
				long += c.sentence(l, 10) + l.stop
			}
			all = append(all, long)
		case 6, 7, 8:
			all = append(all, l.word())
		case 9, 10, 11:
			all = append(all, c.sentence(l, 8))
		default:
			all = append(all, l.words[7]+l.space+about+"?")
		}
		if strings.TrimSpace(all[i]) == "" {
			all[i] = "?"
		}
	}
	return all
}
