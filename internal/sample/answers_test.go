package sample

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A doc is a document of a test. Its URL is made from its id.
type doc struct{ id, title, text string }

func (k *bench) put(docs ...doc) {
	k.Helper()
	k.sync("PUT documents", items(docs...)).want(200)
}

func items(docs ...doc) string {
	list := []map[string]string{}
	for _, d := range docs {
		list = append(list, map[string]string{"id": d.id, "title": d.title, "url": "https://example.org/" + d.id, "text": d.text})
	}
	body, _ := json.Marshal(map[string]any{"items": list})
	return string(body)
}

func (k *bench) ask(question string, fields ...string) reply {
	k.Helper()
	body, _ := json.Marshal(map[string]string{"text": question})
	return k.send("POST /api/v1/widget/messages", k.session, string(body), fields...).want(201)
}

// wantSource checks which document the answer quotes. An empty id means that nothing fits.
func (a reply) wantSource(id string) reply {
	a.Helper()
	sources := a.at("reply.sources").([]any)
	switch {
	case id == "" && len(sources) != 0:
		a.Errorf("%.80q is answered by %s, want that nothing fits", a.text("message.text"), a.text("reply.sources.0.url"))
	case id != "" && len(sources) == 0:
		a.Errorf("%.80q is answered %q, want document %s", a.text("message.text"), a.text("reply.text"), id)
	case id != "":
		if got := strings.TrimPrefix(a.text("reply.sources.0.url"), "https://example.org/"); got != id {
			a.Errorf("%.80q is answered by document %s, want %s", a.text("message.text"), got, id)
		}
	}
	return a
}

// shops are the pages of a small shop in nine languages, with questions of visitors. The backend
// does not know the languages.
var shops = map[string]struct {
	docs []doc
	ask  map[string]string // each question and the document that answers it; empty: none does
}{
	"English": {
		[]doc{
			{"returns", "Returns and refunds", "You may return any item within 30 days of delivery.\nRefunds are paid to the card you used, usually within five working days. Shipping costs are not refunded."},
			{"shipping", "Shipping", "We ship to all countries of the European Union. Delivery takes two to four days. Express shipping is available at checkout."},
			{"warranty", "Warranty", "Every bicycle has a warranty of five years on its frame. Batteries are covered for two years."},
			{"hours", "Opening hours", "Our shop is open from Monday to Saturday, 9 am to 6 pm. We are closed on public holidays."},
		},
		map[string]string{
			"How do I get a refund?":                             "returns",
			"can i send it back? returning":                      "returns",
			"How long does delivery take":                        "shipping",
			"Is the battery covered by the warranty?":            "warranty",
			"when are you open on Saturdays":                     "hours",
			"REFUNDS!!!":                                         "returns",
			"What is the capital of France?":                     "",
			"Who won the football world cup in 1998?":            "",
			"how do I get the":                                   "",
			"Please write me a poem about the sea and the stars": "",
			"Hello!": "",
			"Hi, I am Bartholomew. I bought a bicycle, and the frame has a crack": "warranty",
		},
	},
	"German": {
		[]doc{
			{"rueckgabe", "Rückgabe und Erstattung", "Sie können jeden Artikel innerhalb von 30 Tagen zurückgeben. Die Erstattung erfolgt auf das ursprüngliche Zahlungsmittel."},
			{"versand", "Versand", "Wir liefern nach Deutschland, Österreich und in die Schweiz. Die Lieferung dauert zwei bis vier Werktage."},
			{"oeffnung", "Öffnungszeiten", "Unser Laden hat von Montag bis Samstag von 9 bis 18 Uhr geöffnet. An Feiertagen bleibt er geschlossen."},
		},
		map[string]string{
			"Wie bekomme ich eine Erstattung?":            "rueckgabe",
			"Kann ich die Artikel zurückgeben?":           "rueckgabe",
			"Wie lange dauern Lieferungen?":               "versand",
			"liefert ihr nach OSTERREICH":                 "versand",
			"Habt ihr am Samstag geöffnet?":               "oeffnung",
			"Wie hoch ist der Eiffelturm?":                "",
			"Welche Farbe hat der Himmel über dem Meer?":  "",
			"Was kann ich für dich tun, wenn du es bist?": "",
		},
	},
	"Japanese": {
		[]doc{
			{"henpin", "返品について", "商品到着後30日以内であれば返品できます。返金はご利用のカードに行われます。"},
			{"haisou", "配送について", "全国に配送いたします。お届けまで2日から4日かかります。送料は500円です。"},
			{"eigyou", "営業時間", "営業時間は月曜日から土曜日の9時から18時までです。祝日はお休みです。"},
		},
		map[string]string{
			"返品できますか？":      "henpin",
			"返金はいつですか":      "henpin",
			"送料はいくらですか？":    "haisou",
			"土曜日は営業していますか":  "eigyou",
			"フランスの首都はどこですか": "",
			"こんにちは":         "",
		},
	},
	"Chinese": {
		[]doc{
			{"tuihuo", "退货政策", "商品签收后30天内可以退货。退款将退回到您的付款账户。"},
			{"peisong", "配送方式", "我们向全国配送，通常需要两到四天。运费为十元。"},
			{"yingye", "营业时间", "本店周一至周六上午九点到下午六点营业，法定节假日休息。"},
		},
		map[string]string{
			"怎么退货？":      "tuihuo",
			"退款要多久":      "tuihuo",
			"运费是多少？":     "peisong",
			"周六营业吗":      "yingye",
			"法国的首都是哪里？":  "",
			"你好":         "",
			"请写一首关于大海的诗": "",
		},
	},
	"Arabic": {
		[]doc{
			{"irjaa", "الإرجاع والاسترداد", "يمكنك إرجاع أي منتج خلال ٣٠ يومًا من الاستلام. يتم استرداد المبلغ إلى بطاقتك."},
			{"shahn", "الشحن والتوصيل", "نشحن إلى جميع الدول العربية. يستغرق التوصيل من يومين إلى أربعة أيام."},
			{"saat", "ساعات العمل", "متجرنا مفتوح من السبت إلى الخميس من التاسعة صباحًا حتى السادسة مساءً."},
		},
		map[string]string{
			"كيف يمكنني إرجاع المنتج؟":      "irjaa",
			"هل يمكن استِرداد المبلغ":       "irjaa", // with a diacritic
			"كم يستغرق التوصيل؟":            "shahn",
			"هل المتجر مفتوح يوم السبت؟":    "saat",
			"خلال 30 يوم":                   "irjaa", // with other digits
			"ما هي عاصمة فرنسا؟":            "",
			"مرحبا كيف هذا":                 "",
			"اكتب قصيدة عن البحر والنجوم":   "",
			"من فاز بكأس العالم لكرة القدم": "",
		},
	},
	"Hindi": {
		[]doc{
			{"vapasi", "वापसी और धनवापसी", "आप किसी भी उत्पाद को 30 दिनों के भीतर वापस कर सकते हैं। राशि आपके कार्ड पर लौटाई जाएगी।"},
			{"dilivari", "डिलीवरी", "हम पूरे भारत में सामान भेजते हैं। डिलीवरी में दो से चार दिन लगते हैं।"},
			{"samay", "दुकान का समय", "हमारी दुकान सोमवार से शनिवार सुबह नौ बजे से शाम छह बजे तक खुली रहती है।"},
		},
		map[string]string{
			"मैं उत्पाद वापस कैसे करूँ?":  "vapasi",
			"डिलीवरी में कितना समय लगेगा": "dilivari",
			"दुकान शनिवार को खुली है?":    "samay",
			"फ्रांस की राजधानी क्या है?":  "",
			"नमस्ते": "",
		},
	},
	"Turkish": {
		[]doc{
			{"iade", "İade ve para iadesi", "Ürünleri teslimattan sonra 30 gün içinde iade edebilirsiniz. Para iadesi kartınıza yapılır."},
			{"kargo", "Kargo", "Türkiye'nin her yerine gönderim yapıyoruz. Kargo iki ile dört gün sürer."},
			{"saat", "Çalışma saatleri", "Mağazamız pazartesiden cumartesiye 9 ile 18 arası açıktır. Resmî tatillerde kapalıyız."},
		},
		map[string]string{
			"İADE nasıl yapılır?":           "iade",
			"ürünümü iade etmek istiyorum":  "iade",
			"kargonuz kaç gün sürer":        "kargo",
			"Mağaza cumartesi AÇIK mı?":     "saat",
			"Fransa'nın başkenti neresi?":   "",
			"Merhaba, nasılsın?":            "",
			"bana deniz hakkında şiir yaz?": "",
		},
	},
	"Russian": {
		[]doc{
			{"vozvrat", "Возврат и возмещение", "Вы можете вернуть любой товар в течение 30 дней. Деньги возвращаются на вашу карту."},
			{"dostavka", "Доставка", "Мы доставляем заказы по всей России. Доставка занимает от двух до четырёх дней."},
			{"chasy", "Часы работы", "Наш магазин открыт с понедельника по субботу с 9 до 18 часов."},
		},
		map[string]string{
			"Как оформить возврат товара?":  "vozvrat",
			"сколько дней идёт доставка":    "dostavka",
			"сроки доставки заказа":         "dostavka",
			"Магазин работает в субботу?":   "chasy",
			"Какая столица Франции?":        "",
			"Здравствуйте":                  "",
			"Напиши стихотворение про море": "",
		},
	},
	"Thai": {
		[]doc{
			{"khuen", "การคืนสินค้า", "คุณสามารถคืนสินค้าได้ภายใน 30 วันหลังจากได้รับสินค้า เราจะคืนเงินเข้าบัตรของคุณ"},
			{"songkhong", "การจัดส่ง", "เราจัดส่งทั่วประเทศไทย ใช้เวลาสองถึงสี่วัน ค่าจัดส่ง 50 บาท"},
			{"wela", "เวลาทำการ", "ร้านเปิดวันจันทร์ถึงวันเสาร์ เวลาเก้าโมงถึงหกโมงเย็น ปิดวันหยุดนักขัตฤกษ์"},
		},
		map[string]string{
			"คืนสินค้าได้อย่างไร":         "khuen",
			"ค่าจัดส่งเท่าไหร่":           "songkhong",
			"ร้านเปิดวันเสาร์ไหม":         "wela",
			"เมืองหลวงของฝรั่งเศสคืออะไร": "",
			"สวัสดีครับ":                  "",
		},
	},
}

// A question finds the page that answers it. If no page does, the answer says so, in any language.
func TestQuestionsFindTheirPageAndOthersFindNone(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for language, shop := range shops {
		t.Run(language, func(t *testing.T) {
			k := setUp(t)
			k.put(shop.docs...)
			for question, id := range shop.ask {
				k.ask(question).wantSource(id)
			}
		})
	}
}

func TestAnAnswerQuotesItsFirstSource(t *testing.T) {
	k := setUp(t)
	k.put(shops["English"].docs...)
	k.put(doc{"faq", "Questions", "Refund? See the page on refunds."}, doc{"terms", "Terms", "A refund is a refund. Refunds of a refund are none."}, doc{"more", "More", "refund refund refund"})
	a := k.ask("How long does a refund to my card take?").wantSource("returns")
	a.says("reply.text", "“Refunds are paid to the card you used, usually within five working days. Shipping costs are not refunded.”\n— Returns and refunds")
	a.says("reply.sources.0.title", "Returns and refunds")
	if n := len(k.ask("refund").at("reply.sources").([]any)); n != 3 {
		t.Errorf("the answer names %d sources, want 3 of the 4 that fit", n)
	}
	read := k.widget("GET conversations/"+a.text("message.conversation_id"), "").want(200)
	read.says("messages.items.1.text", a.text("reply.text")).says("messages.items.1.sources.0.url", "https://example.org/returns")
	k.put(doc{"empty", "Zirconium rings", ""})
	k.ask("zirconium").wantSource("empty").says("reply.text", "Zirconium rings")
}

// Syncs and deletions take effect for the next question.
func TestASyncChangesTheVeryNextAnswer(t *testing.T) {
	k := setUp(t)
	k.ask("zirconium").wantSource("")
	k.put(doc{"a", "Rings", "Zirconium rings."})
	k.ask("zirconium").wantSource("a")
	k.put(doc{"a", "Rings", "Titanium rings."})
	k.ask("zirconium").wantSource("")
	k.ask("titanium").wantSource("a").says("reply.text", "“Titanium rings.”\n— Rings")
	k.sync("DELETE documents", `{"items":[{"id":"a"}]}`).want(200)
	k.ask("titanium").wantSource("")
	k.put(doc{"a", "Rings", "Titanium rings."})
	k.ask("titanium").wantSource("a")
}

// The languages are D20's, chosen as for the 429.
func TestWhereNothingFitsItIsSaidInTheVisitorsLanguage(t *testing.T) {
	k := setUp(t)
	said := map[string]string{}
	for accept, want := range map[string]string{
		"": "en", "de-AT,de;q=0.9,en;q=0.8": "de", "es": "es", "fr-CA": "fr", "it": "it", "ja": "ja", "nl": "nl", "pl": "pl", "pt-BR": "pt", "tr": "tr",
		"uk": "uk", "zh-TW": "zh", "ar-EG": "ar", "tlh": "en", "de;q=0": "en", "\x00;;": "en",
	} {
		t.Run(accept, func(t *testing.T) {
			a := k.ask("zirconium", "Accept-Language", accept).wantSource("")
			if got := a.header.Get("Content-Language"); got != want || a.header.Get("Vary") != "Accept-Language" {
				t.Errorf("Accept-Language %q is answered in %q, Vary %q: want %q", accept, got, a.header.Get("Vary"), want)
			}
			said[a.text("reply.text")] = want
		})
	}
	if len(said) != 13 || said[""] != "" {
		t.Errorf("there are %d different sentences, want 13: %v", len(said), said)
	}
	k.put(doc{"a", "Rings", "Zirconium rings."})
	if a := k.ask("zirconium", "Accept-Language", "de"); a.header.Get("Content-Language") != "" {
		t.Error("an answer that quotes a page claims to know its language")
	}
}

// A message is plain text, even if it has the syntax of FTS5 or SQL.
func TestNothingThatAVisitorWritesIsSyntax(t *testing.T) {
	k := setUp(t)
	k.put(doc{"a", "Rings", "Zirconium rings by the sea."}, doc{"b", "Other", "Something else."})
	for _, question := range []string{
		`"`, `""`, `"""`, `*`, `zirconium*`, `"zirconium`, `zirconium"`, `"zirconium" "rings"`, `NEAR(zirconium rings)`, `NEAR(zirconium rings, 2)`, `NEAR(`,
		`zirconium AND rings`, `AND zirconium`, `zirconium AND`, `zirconium OR`, `NOT zirconium`, `zirconium NOT rings`, `zirconium - rings`, `^zirconium`,
		`text:zirconium`, `title : zirconium`, `{text title}: zirconium`, `-text:zirconium`, `nosuchcolumn:zirconium`, `zirconium + rings`, `(zirconium`,
		`zirconium)`, `'; DROP TABLE; -- zirconium`, `\zirconium\`, `zirconium_rings`, `1_zirconium`, `rank MATCH 'x' zirconium`, "zirconium\n\trings", `zirconium%`,
	} {
		a := k.ask(question)
		if strings.Contains(question, "zirconium") {
			a.wantSource("a")
		} else {
			a.wantSource("")
		}
	}
}

func TestAMessageWithoutWordsFitsNothing(t *testing.T) {
	k := setUp(t)
	k.put(shops["English"].docs...)
	for _, question := range []string{"?", "…!?", "👋", "👩🏽‍🚀🇩🇪", "🙏🙏🙏", "---", "。、", "؟", "\u200d", "a", "$ € £", "\u202e"} {
		k.ask(question).wantSource("")
	}
}

func TestALongMessageIsAnsweredToo(t *testing.T) {
	k := setUp(t)
	k.put(shops["English"].docs...)
	long := ""
	for i := 0; len(long) < maxText-100; i++ {
		long += fmt.Sprintf("wort%dx ", i)
	}
	k.ask(long + "bicycle delivery").wantSource("")
	k.ask("My bicycle frame broke, is there a warranty on the frame? " + long[:maxText-200]).wantSource("warranty")
	k.ask("My bicycle frame broke, is there a warranty on the frame? " + strings.Repeat("I have been a happy customer. ", 200)).wantSource("warranty")
}

// If a message cannot be answered it is not stored, and the visitor gets an error and can send it
// again.
func TestAFailingSearchStoresNothingAndSaysSo(t *testing.T) {
	k := setUp(t)
	k.put(doc{"a", "Rings", "Zirconium rings."})
	before := k.census()
	k.exec(`UPDATE search_version SET version = 999`)
	k.widget("POST messages", `{"text":"zirconium"}`).wantError(503, "store_unavailable")
	if k.census() != before || !strings.Contains(k.log.String(), "another version of weir has indexed the documents anew") {
		t.Errorf("rows of %v are %v, were %v; the log says %s", tables, k.census(), before, k.log.String())
	}
	again := k.open(Options{Dir: k.dir}) // as a start of that version would
	k.b = again
	k.ask("zirconium").wantSource("a")
}

// Answers under concurrent syncs always fit one state of the documents.
func TestQuestionsAndSyncsAtOnceSeeWholeStates(t *testing.T) {
	k := setUpWith(t, Options{BusyTimeout: time.Minute})
	states := []string{}
	for i := range 4 {
		states = append(states, items(doc{"a", "Rings", fmt.Sprintf("zirconium %d", i)}, doc{"b", "Bands", fmt.Sprintf("zirconium %d too", i)}))
	}
	k.sync("PUT documents", states[0]).want(200)
	var group sync.WaitGroup
	send := func(method, path, credential, body string) reply {
		r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", credential)
		return k.do(r)
	}
	for i := range 4 {
		group.Go(func() {
			for range 8 {
				if a := send("PUT", "/v1/wp/documents", k.token, states[i]); a.status != 200 {
					t.Errorf("a sync is answered %d %s", a.status, a.body)
				}
			}
		})
		group.Go(func() {
			for range 8 {
				a := send("POST", "/api/v1/widget/messages", k.session, `{"text":"zirconium"}`)
				if a.status != 201 || strings.Count(string(a.body), `"url":"https://example.org/`) != 2 || !strings.Contains(string(a.body), "“zirconium ") {
					t.Errorf("a question is answered %d %s", a.status, a.body)
				}
			}
		})
	}
	group.Wait()
	k.exec(`INSERT INTO search (search) VALUES ('integrity-check')`)
}

func TestATooLargeOrUnreadableMessageIsRefused(t *testing.T) {
	k := setUp(t)
	k.widget("POST messages", `{"text":"`+strings.Repeat("x", 10<<20)+`"}`).wantError(413, "payload_too_large")
	for _, control := range []string{`\u0000`, `\u0007`, `\u001b`, `\u007f`, `\u0085`} {
		k.widget("POST messages", `{"text":"zirconium `+control+`"}`).wantError(400, "invalid_request", "control character")
	}
}

// Feedback applies to answers in the session's own conversations; the feed reports changes.
func TestFeedbackIsKeptAndItsChangesAreTold(t *testing.T) {
	k := setUp(t)
	a := k.ask("hello")
	said, answered := a.text("message.id"), a.text("reply.id")
	send := func(id, body string) reply { return k.widget("POST messages/"+id+"/feedback", body) }
	send(answered, `{"helpful":true}`).want(204)
	send(answered, `{"helpful":true}`).want(204) // no change
	k.widget("POST conversations/"+a.text("message.conversation_id")+"/close", "").want(200)
	send(answered, `{"helpful":false}`).want(204)
	send(answered, `{"helpful":false}`).want(204)
	feed := k.widget("GET events?after=3", "").want(200).says("items.0.type", "feedback.given").says("items.0.source", "server")
	feed.says("items.0.data.message_id", answered).says("items.0.data.helpful", true).says("items.2.data.helpful", false).says("next", 6.0)
	if k.rows("messages WHERE helpful = 0") != 1 || k.rows("messages WHERE helpful IS NOT NULL") != 1 {
		t.Error("the last feedback is not what is kept")
	}

	send(said, `{"helpful":true}`).wantError(422, "unprocessable", said, "visitor's own")
	send("msg_none", `{"helpful":true}`).wantError(404, "not_found", "msg_none")
	for _, stranger := range []string{k.visitor("demo"), ""} {
		a := k.send("POST /api/v1/widget/messages/"+answered+"/feedback", stranger, `{"helpful":true}`)
		if want := map[bool]int{true: 401, false: 404}[stranger == ""]; a.status != want {
			t.Errorf("somebody else's feedback is answered %d, want %d", a.status, want)
		}
	}
	for body, want := range map[string]string{
		`{}`: `"helpful" is missing`, `{"helpful":1}`: "true or false", `{"helpful":"true"}`: "true or false", `{"helpful":null}`: `"helpful" is missing`,
		`{"helpful":true,"score":5}`: `unknown field "score"`,
	} {
		t.Run(body, func(t *testing.T) {
			send(answered, body).wantError(400, "invalid_request", want)
		})
	}
	k.widget("GET events?after=6", "").want(200).says("more", false).says("next", 6.0)
}
