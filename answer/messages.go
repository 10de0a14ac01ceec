package answer

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/text/language"

	"github.com/weirlimit/weir"
)

const languageCount = 13

// languages are those of the 429, in the order of every row of the catalogue. The first is the
// default (D20).
var languages = [languageCount]language.Tag{
	language.English, language.German, language.Spanish, language.French, language.Italian, language.Japanese, language.Dutch,
	language.Polish, language.Portuguese, language.Turkish, language.Ukrainian, language.Chinese, language.Arabic,
}

const (
	// The contract's policy declares these: the contract's sentence (section 7), and one of ours.
	widgetMessage = "widget"
	syncMessage   = "bulk-sync"
	// Of limiters that declare none. A caller that the limit in flight refuses need not slow down.
	generalMessage = "general"
	flightMessage  = "in-flight"
)

// MessageOf returns the name of the message in l's 429 under a policy with the responses w: the one
// that the policy declares, or the general one.
func MessageOf(w *weir.Responses, l *weir.Limiter) string {
	return cmp.Or(w.MessageOf(l), generalMessage)
}

// Messages returns the names of the built-in messages, sorted. A policy may have more, and may
// replace these.
func Messages() []string { return slices.Sorted(maps.Keys(catalogue)) }

// Text returns the English text of a message under a policy with the responses w; ok is false if no
// message has that name.
func Text(w *weir.Responses, message string) (text string, ok bool) {
	if own, ok := w.Messages[message]; ok {
		return own[weir.English], true
	}
	texts, ok := catalogue[message]
	return texts[0], ok
}

// catalogue are the texts of the 429 by name. They use the formal "you" in the languages that have
// one.
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
	flightMessage: {
		"Too many requests at the same time. Please wait until one of them has ended.",
		"Zu viele gleichzeitige Anfragen. Bitte warten Sie, bis eine davon beendet ist.",
		"Demasiadas solicitudes simultáneas. Por favor, espere a que termine una de ellas.",
		"Trop de requêtes simultanées. Veuillez attendre que l’une d’elles se termine.",
		"Troppe richieste contemporanee. Si prega di attendere che una di esse termini.",
		"同時に処理中のリクエストが多すぎます。いずれかが完了するまでお待ちください。",
		"Te veel gelijktijdige verzoeken. Wacht alstublieft tot een ervan is afgerond.",
		"Zbyt wiele jednoczesnych żądań. Prosimy poczekać, aż jedno z nich się zakończy.",
		"Excesso de solicitações simultâneas. Por favor, aguarde até que uma delas termine.",
		"Aynı anda çok fazla istek gönderildi. Lütfen birinin tamamlanmasını bekleyin.",
		"Забагато одночасних запитів. Будь ласка, зачекайте, доки один із них завершиться.",
		"同时进行的请求过多，请等待其中一个完成。",
		"عدد الطلبات المتزامنة كبير جدًا. يُرجى الانتظار حتى ينتهي أحدها.",
	},
	syncMessage: {
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
