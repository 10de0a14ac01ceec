package httplimit

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/text/language"

	"github.com/weirlimit/weir"
)

const languageCount = 13

// languages are those of the 429, in the order of every row of the catalogue; the first is the default (D20).
var languages = [languageCount]language.Tag{
	language.English, language.German, language.Spanish, language.French, language.Italian, language.Japanese, language.Dutch,
	language.Polish, language.Portuguese, language.Turkish, language.Ukrainian, language.Chinese, language.Arabic,
}

// What a limiter without Message says: the contract's sentence (section 7) on the widget surface, elsewhere one that speaks
// of neither widgets nor conversations.
const (
	widgetMessage  = "widget"
	generalMessage = "general"
	widgetSurface  = "/api/v1/widget"
)

// MessageOf returns the name of the text that l's 429 carries: its Message, or the one for the surface that its routes are
// on.
func MessageOf(l *weir.Limiter) string {
	if l.Message != "" {
		return l.Message
	}
	for _, r := range l.Routes {
		if strings.HasPrefix(r.Path, widgetSurface) {
			return widgetMessage
		}
	}
	return generalMessage
}

// Messages returns the names that a limiter's Message can have, sorted: the texts of the 429.
func Messages() []string { return slices.Sorted(maps.Keys(catalogue)) }

// catalogue holds the texts of the 429 by the name that a policy gives them. All address a stranger politely, so where a
// language has a formal "you", it is that.
var catalogue = map[string][languageCount]string{
	widgetMessage: {
		"Too many widget requests for this conversation. Please slow down.",
		"Zu viele Widget-Anfragen in dieser Unterhaltung. Bitte senden Sie Anfragen langsamer.",
		"Demasiadas solicitudes del widget en esta conversación. Por favor, vaya más despacio.",
		"Trop de requêtes du widget pour cette conversation. Veuillez ralentir.",
		"Troppe richieste del widget per questa conversazione. Si prega di rallentare.",
		"この会話でのウィジェットのリクエストが多すぎます。少し間隔を空けてください。",
		"Te veel widgetverzoeken voor dit gesprek. Doe het alstublieft rustiger aan.",
		"Zbyt wiele żądań widżetu w tej rozmowie. Prosimy zwolnić.",
		"Excesso de solicitações do widget nesta conversa. Por favor, reduza o ritmo.",
		"Bu görüşme için çok fazla widget isteği gönderildi. Lütfen yavaşlayın.",
		"Забагато запитів від віджета в цій розмові. Будь ласка, надсилайте їх повільніше.",
		"此对话的小组件请求过多，请放慢速度。",
		"عدد طلبات الأداة كبير جدًا في هذه المحادثة. يُرجى الإبطاء.",
	},
	generalMessage: {
		"Too many requests. Please slow down.",
		"Zu viele Anfragen. Bitte senden Sie Anfragen langsamer.",
		"Demasiadas solicitudes. Por favor, vaya más despacio.",
		"Trop de requêtes. Veuillez ralentir.",
		"Troppe richieste. Si prega di rallentare.",
		"リクエストが多すぎます。少し間隔を空けてください。",
		"Te veel verzoeken. Doe het alstublieft rustiger aan.",
		"Zbyt wiele żądań. Prosimy zwolnić.",
		"Excesso de solicitações. Por favor, reduza o ritmo.",
		"Çok fazla istek gönderildi. Lütfen yavaşlayın.",
		"Забагато запитів. Будь ласка, надсилайте їх повільніше.",
		"请求过多，请放慢速度。",
		"عدد الطلبات كبير جدًا. يُرجى الإبطاء.",
	},
	"bulk-sync": {
		"Too many sync requests for this workspace token. Please slow down.",
		"Zu viele Synchronisierungsanfragen für dieses Workspace-Token. Bitte senden Sie Anfragen langsamer.",
		"Demasiadas solicitudes de sincronización para este token del espacio de trabajo. Por favor, vaya más despacio.",
		"Trop de requêtes de synchronisation pour ce jeton d’espace de travail. Veuillez ralentir.",
		"Troppe richieste di sincronizzazione per questo token dell’area di lavoro. Si prega di rallentare.",
		"このワークスペーストークンでの同期リクエストが多すぎます。少し間隔を空けてください。",
		"Te veel synchronisatieverzoeken voor dit werkruimtetoken. Doe het alstublieft rustiger aan.",
		"Zbyt wiele żądań synchronizacji dla tego tokenu obszaru roboczego. Prosimy zwolnić.",
		"Excesso de solicitações de sincronização para este token do espaço de trabalho. Por favor, reduza o ritmo.",
		"Bu çalışma alanı belirteci için çok fazla eşitleme isteği gönderildi. Lütfen yavaşlayın.",
		"Забагато запитів на синхронізацію для цього токена робочого простору. Будь ласка, надсилайте їх повільніше.",
		"此工作区令牌的同步请求过多，请放慢速度。",
		"عدد طلبات المزامنة كبير جدًا لرمز مساحة العمل هذا. يُرجى الإبطاء.",
	},
}

const (
	maxAccept = 512 // bytes of Accept-Language that are read
	maxRanges = 8   // languages of it that are looked up, the most wanted ones
	maxRange  = 35  // bytes of one of them (RFC 5646, section 4.4.1)
)

// A Speaker finds the language of an answer. A browser says the same thing with every request, so the last answers are
// kept, in a table of fixed size: what a hostile header costs is bounded by the constants above, and so is the memory.
type Speaker struct {
	matcher language.Matcher
	seed    maphash.Seed
	heard   *[256]atomic.Pointer[heard]
}

type heard struct {
	accept string
	index  int
}

// NewSpeaker returns a Speaker of the languages of the 429.
func NewSpeaker() Speaker {
	return Speaker{language.NewMatcher(languages[:]), maphash.MakeSeed(), new([256]atomic.Pointer[heard])}
}

// Language returns the one of the languages of the 429 (a tag like "de") that the lines of an Accept-Language field ask for;
// "en" where they ask for none of them.
func (s *Speaker) Language(lines []string) string { return languages[s.language(lines)].String() }

// language returns the index of the language that the lines of an Accept-Language field ask for; 0, the default, where
// they ask for none that we speak.
func (s *Speaker) language(lines []string) int {
	if len(lines) == 0 {
		return 0
	}
	accept := lines[0]
	if len(lines) > 1 {
		accept = strings.Join(lines, ",")
	}
	if len(accept) > maxAccept {
		// What is cut off would have been the least wanted in any header that somebody means.
		accept = accept[:maxAccept]
		accept = accept[:max(strings.LastIndexByte(accept, ','), 0)]
	}
	slot := &s.heard[maphash.String(s.seed, accept)%uint64(len(s.heard))]
	if h := slot.Load(); h != nil && h.accept == accept {
		return h.index
	}
	index := s.match(wanted(accept))
	slot.Store(&heard{strings.Clone(accept), index})
	return index
}

func (s *Speaker) match(ranges []languageRange) int {
	var tags []language.Tag
	for _, r := range ranges[:min(len(ranges), maxRanges)] {
		if r.name == "*" {
			break // any other language: the default
		}
		// A tag with an unknown part is worth the rest of it.
		if tag, _ := language.Parse(r.name); tag != language.Und {
			tags = append(tags, tag)
		}
	}
	if len(tags) == 0 {
		return 0
	}
	_, index, confidence := s.matcher.Match(tags...)
	if confidence == language.No {
		return 0
	}
	return index
}

// A languageRange is one member of Accept-Language.
type languageRange struct {
	name   string
	weight int // in thousandths
}

// wanted reads an Accept-Language, the most wanted first; what is malformed or has a weight of 0 is left out, and among
// equals "*" comes last (RFC 9110, sections 12.4.2 and 12.5.4).
func wanted(accept string) []languageRange {
	var ranges []languageRange
	for member := range strings.SplitSeq(accept, ",") {
		name, parameter, weighted := strings.Cut(member, ";")
		r := languageRange{strings.Trim(name, " \t"), 1000}
		if weighted {
			r.weight = weight(strings.Trim(parameter, " \t"))
		}
		if r.weight > 0 && isRange(r.name) {
			ranges = append(ranges, r)
		}
	}
	slices.SortStableFunc(ranges, func(a, b languageRange) int {
		if a.weight == b.weight && (a.name == "*") != (b.name == "*") {
			if a.name == "*" {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.weight, a.weight)
	})
	return ranges
}

func isRange(s string) bool {
	if s == "*" {
		return true
	}
	if s == "" || len(s) > maxRange {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// weight reads q=0.123 as thousandths; 0 where it is malformed, which drops the member like a weight of 0.
func weight(s string) int {
	if len(s) < 3 || s[0]|0x20 != 'q' || s[1] != '=' || len(s) > len("q=0.123") {
		return 0
	}
	s = s[2:]
	if s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0
	}
	n, unit := 1000*int(s[0]-'0'), 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		n += unit * int(s[i]-'0')
		unit /= 10
	}
	if n > 1000 {
		return 0
	}
	return n
}
