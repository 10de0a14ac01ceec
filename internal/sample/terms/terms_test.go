package terms

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func terms(text string) (all []string) {
	for t := range Of(text) {
		all = append(all, t.Text)
	}
	return all
}

// Every word of a line finds every other.
func TestFormsOfAWordAreOneTerm(t *testing.T) {
	for _, line := range []string{
		"delivery Deliveries DELIVERED delivering", "order orders ordered ordering", "policy policies", "ship ships shipped shipping",
		"cancel cancelled cancelling cancellation cancels", "change changing changed changes", "address addresses", "refund refunds refunding",
		"Bestellung Bestellungen bestellen", "Haus Häuser HÄUSER hauser", "Straße STRASSE strasse",
		"pedido pedidos", "devolución devoluciones devolucion", "école ÉCOLES e\u0301cole", "remboursement rembourser remboursé",
		"sipariş siparişler siparişimi SİPARİŞ siparis", "iade İADE iadesi", "KIRIK kırık", "łódź LODZ",
		"доставка доставки доставку ДОСТАВКА", "возврат возврата возвраты", "ёлка елка", "замовлення замовленням",
		"παραγγελία παραγγελιών ΠΑΡΑΓΓΕΛΊΑ", "طلب طلبات الطلب الطلبات", "مُنتَج منتج المنتج منـتج والمنتجات", "می\u200cشود میشود",
		"שָׁלוֹם שלום", "किताब किताबें किताबों", "ＡＢＣ abc", "ガラ ｶﾞﾗ", "30 ٣٠ ३० ３０",
	} {
		all := terms(line)
		if slices.Sort(all); len(slices.Compact(all)) != 1 {
			t.Errorf("%q has the terms %q, want one", line, terms(line))
		}
	}
}

func TestDifferentWordsStayDifferent(t *testing.T) {
	for _, line := range []string{
		"order board border", "internet international interest", "plan plant plain", "contact contract content", "return retail retire",
		"доставка договор", "कल काल", "منتج متجر", "バス パス", "日本 本日",
	} {
		all := terms(line)
		n := len(strings.Fields(line))
		if slices.Sort(all); len(slices.Compact(all)) != n {
			t.Errorf("%q has the terms %q, want %d different ones", line, terms(line), n)
		}
	}
}

func TestTextIsCutAsItsScriptIsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		" \t\n!?…👋🏽🇩🇪":            "",
		"don't e-mail a_b c++":    "don t e mail a b c",
		"退货政策":                    "退货 货政 政策",
		"茶":                       "茶",
		"茶。水 A4紙":                 "茶 水 a4 紙",
		"ｶﾞｲﾄﾞ":                   "ガイ イド",
		"サーバー":                    "サー ーバ バー",
		"か\u3099く":                "がく",
		"환불은":                     "환불 불은",
		"เงิน":                    "เงิน",
		"น้ำเปล่า":                "น้ําเป เปล่า",
		"हिन्दी":                  "हिन्द",
		"ما٣":                     "ما3",
		"\xff\xfeabc\xff":         "abc",
		"Straße\u00adname\u200bx": "strassenam x",
		"x²":                      "x2",
		"ﬁne":                     "fine",
	} {
		t.Run(text, func(t *testing.T) {
			if got := strings.Join(terms(text), " "); got != want {
				t.Errorf("%q has the terms %q, want %q", text, got, want)
			}
		})
	}
}

func TestEachTermNamesItsPlace(t *testing.T) {
	text := "Ångström, 退货政策 e\u0301tat"
	var places []string
	for term := range Of(text) {
		places = append(places, text[term.Start:term.End])
	}
	if got := strings.Join(places, "|"); got != "Ångström|退货|货政|政策|e\u0301tat" {
		t.Errorf("the terms of %q are at %s", text, got)
	}
}

func TestWordsOfQuestionsSayNothing(t *testing.T) {
	for _, question := range []string{
		"How do I get the …?", "hello", "Wie kann ich bitte?", "¿Cómo puedo?", "Comment faire s’il vous plaît ?", "どうすればいいですか", "怎么可以？",
		"كيف يمكنني", "कैसे करें", "nasıl yapılır", "как мне можно", "як можна", "ได้อย่างไร", "어떻게 하나요", "x 1 я",
	} {
		for _, term := range terms(question) {
			if !Stop(term) {
				t.Errorf("%q of %q is not a stop word", term, question)
			}
		}
	}
	for _, word := range []string{"refund", "Erstattung", "返品", "退款", "استرداد", "वापसी", "iade", "возврат", "คืนเงิน", "환불", "カード"} {
		if all := terms(word); Stop(all[0]) {
			t.Errorf("%q is a stop word", word)
		}
	}
}

// Text is never cut inside a character with its combining marks.
func TestACutSplitsNoCharacter(t *testing.T) {
	for _, whole := range []string{
		"e\u0301", "क्षि", "น้ำ", "เก", "กำ", "か\u3099", "ｶﾞ", "각", "👨‍👩‍👧", "👍🏽", "🇩🇪", "葛\U000E0100", "\r\n", "a\u200db", "ក្ក", "က္က", "שָׁ", "ab", "अब",
	} {
		for at := 1; at < len(whole); at++ {
			if Breaks("x "+whole+" x", 2+at) {
				t.Errorf("%+q may be cut at %d", whole, at)
			}
		}
		if text := "x " + whole + " x"; !Breaks(text, 2) || !Breaks(text, len(text)-2) {
			t.Errorf("%+q may not be cut off at all", whole)
		}
	}
	// also after a space
	for _, clinging := range []string{"\u0301", "\u200d", "🏽", "\uff9e", "\u093f"} {
		if Breaks("a "+clinging+"b", 2) {
			t.Errorf("a space may be cut from the %+q that belongs to it", clinging)
		}
	}
	for _, two := range []string{"退货", "かな", "กข", "한국", "。次", "クリ"} {
		if _, size := utf8.DecodeRuneInString(two); !Breaks(two, size) {
			t.Errorf("%q may not be cut", two)
		}
	}
}

func FuzzTermsAreLettersWhereTheyStand(f *testing.F) {
	for _, text := range []string{
		"How do I get a refund?", "退货政策 A4", "น้ำเปล่า", "e\u0301\u0301\u0301", "\xff\xe0\x80", "ﷺ ㈱ ㌀ ½", `"NEAR(a b)" ^c* d:e`, "ᄒ", "가\u11a8", "İIıi ẞß",
		strings.Repeat("x", 200) + strings.Repeat("語", 200) + "a" + strings.Repeat("\u0301", 300), "का\u094dक", "เเเ", "\u3099か", "0\u20e3", "000ᣣAA",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		for term := range Of(text) {
			switch {
			case term.Text == "" || len(term.Text) > maxTerm || !utf8.ValidString(term.Text):
				t.Fatalf("%q has the term %q", text, term.Text)
			case term.Start < last || term.End <= term.Start || term.End > len(text):
				t.Fatalf("%q has a term at %d to %d, after one at %d", text, term.Start, term.End, last)
			}
			last = term.Start
			for _, r := range term.Text {
				if !unicode.In(r, unicode.L, unicode.M, unicode.N) {
					t.Fatalf("%q has the term %q", text, term.Text)
				}
			}
			if again := terms(term.Text); kindOf([]rune(term.Text)[0]) != spaceless && len(again) != 1 {
				t.Fatalf("%q has the term %q, which is cut into %q", text, term.Text, again)
			}
			Stop(term.Text)
		}
		for at := range len(text) + 1 {
			if Sentence(text, at) && !Breaks(text, at) {
				t.Fatalf("%q has a sentence's end at %d, where it must not be cut", text, at)
			}
		}
	})
}

func BenchmarkTerms(b *testing.B) {
	for name, text := range map[string]string{
		"English":  "Every bicycle has a warranty of five years on its frame. ",
		"Russian":  "Мы доставляем заказы по всей России за несколько дней. ",
		"Japanese": "商品到着後30日以内であれば返品できます。",
		"Hindi":    "आप किसी भी उत्पाद को 30 दिनों के भीतर वापस कर सकते हैं। ",
		"Thai":     "คุณสามารถคืนสินค้าได้ภายใน 30 วันหลังจากได้รับสินค้า ",
	} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(text, 2000/len(text))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for range Of(text) {
				}
			}
		})
	}
}
