// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// rawRequest is a request whose bytes a test decides. The zero value of a field means what an SDK would send.
type rawRequest struct {
	method string // GET
	target string // path and arguments as they are on the wire
	body   string
	header []string // names and values in turn, as they are on the wire, behind Host
	signed string   // names of the signed headers; by default host and all x-amz-*
	user   string   // root
	secret string
	stamp  string // time of the signature
	ago    time.Duration
	scope  string // DAY/REGION/SERVICE/aws4_request
	hash   string
	query  string // X-Amz-Expires of a presigned URL; if empty, the signature is in a header
	host   string
	length string // Content-Length of the wire; "-" leaves it out
	tail   string // more arguments, behind the signature
	more   []string
	spoil  func(string) string // changes the signed text
}

// text returns the bytes of the request. The signature is that of Amazon's specification.
func (r rawRequest) text(addr string) string {
	r.method, r.host, r.user = cmp.Or(r.method, "GET"), cmp.Or(r.host, addr), cmp.Or(r.user, rootKey)
	if r.secret == "" {
		r.secret = r.user + "ssecret"
		if r.user == rootKey {
			r.secret = rootSecret
		}
	}
	r.stamp = cmp.Or(r.stamp, time.Now().Add(-r.ago).UTC().Format(stampLayout))
	r.scope = cmp.Or(r.scope, r.stamp[:8]+"/"+testRegion+"/s3/aws4_request")
	sum := sha256.Sum256([]byte(r.body))
	r.hash = cmp.Or(r.hash, hex.EncodeToString(sum[:]))
	header := append([]string{"Host", r.host}, r.header...)
	path, query, _ := strings.Cut(r.target, "?")
	args, _ := url.ParseQuery(query) // a test of a malformed query is refused everywhere
	if r.query != "" {
		r.hash = unsignedPayload
	} else {
		header = append(header, "X-Amz-Date", r.stamp, "X-Amz-Content-Sha256", r.hash)
	}
	values := map[string][]string{}
	for i := 0; i+1 < len(header); i += 2 {
		name := strings.ToLower(header[i])
		values[name] = append(values[name], strings.Join(strings.Fields(header[i+1]), " "))
	}
	if r.signed == "" {
		var names []string
		for name := range values {
			if name == "host" || strings.HasPrefix(name, "x-amz-") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		r.signed = strings.Join(names, ";")
	}
	if r.query != "" {
		args.Set("X-Amz-Algorithm", algorithmV4)
		args.Set("X-Amz-Credential", r.user+"/"+r.scope)
		args.Set("X-Amz-Date", r.stamp)
		if r.query != "none" {
			args.Set("X-Amz-Expires", r.query)
		}
		args.Set("X-Amz-SignedHeaders", r.signed)
		query = args.Encode()
	}
	length := strconv.Itoa(len(r.body))
	lines := ""
	for _, name := range strings.Split(r.signed, ";") {
		v := strings.Join(values[name], ",")
		if name == "content-length" {
			v = length
		}
		lines += name + ":" + v + "\n"
	}
	signedPath := path
	if plain, err := url.PathUnescape(path); err == nil {
		signedPath = strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(plain), "+", "%20"), "%2F", "/")
	}
	signedQuery := strings.ReplaceAll(args.Encode(), "+", "%20")
	canonical := strings.Join([]string{r.method, signedPath, signedQuery, lines, r.signed, r.hash}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + r.secret)
	for _, part := range strings.Split(r.scope, "/") {
		key = authenticate(key, []byte(part))
	}
	signature := hex.EncodeToString(authenticate(key, []byte(algorithmV4+"\n"+r.stamp+"\n"+r.scope+"\n"+
		hex.EncodeToString(digest[:]))))
	if r.query != "" {
		query += "&X-Amz-Signature=" + signature
	} else {
		header = append(header, "Authorization", algorithmV4+" Credential="+r.user+"/"+r.scope+", SignedHeaders="+r.signed+
			", Signature="+signature)
	}
	if r.length != "-" && (r.body != "" || r.method == "PUT" || r.length != "") {
		header = append(header, "Content-Length", cmp.Or(r.length, length))
	}
	if r.tail != "" {
		query = strings.TrimPrefix(query+"&"+r.tail, "&")
	}
	if query != "" {
		path += "?" + query
	}
	text := r.method + " " + path + " HTTP/1.1\r\n"
	header = append(header, r.more...)
	for i := 0; i+1 < len(header); i += 2 {
		text += header[i] + ": " + header[i+1] + "\r\n"
	}
	text += "\r\n" + r.body
	if r.spoil != nil {
		text = r.spoil(text)
	}
	return text
}

// slowly returns the text of a request with a header that only versitygw takes.
func slowly(text string) string {
	return strings.Replace(text, "\r\n", "\r\nX-Not-Plain: 1\r\n", 1)
}

// auditor collects what the audit log, the access logs and the metrics of a server get to know.
type auditor struct {
	mu                sync.Mutex
	seen              sync.Cond // signals that observed has changed
	audited, observed int
	lines             []string
}

func newAuditor() *auditor {
	a := &auditor{}
	a.seen.L = &a.mu
	return a
}

// options makes a server write to the auditor.
func (a *auditor) options(o *Options) {
	o.Audit = func(e *Event) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.audited++
		h := *e.HTTP
		if len(h.HostID) > 80 {
			h.HostID = "identifier"
		}
		a.lines = append(a.lines, fmt.Sprintf("audit %s %s %q %q %d %q in %d out %d by %q served %q: %+v", e.Operation,
			e.Method, e.Bucket, e.Key, e.Status, e.Code, e.In, e.Out, e.Account, e.Served, h))
		return nil
	}
	o.AccessLog = func(to accesslog.Target, line []byte) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lines = append(a.lines, "log of "+to.Source+": "+withoutTimes(string(line)))
		return nil
	}
	o.Observe = func(e Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.observed++
		a.lines = append(a.lines, fmt.Sprintf("observed %s %q %d %q in %d out %d by %q served %q error %v", e.Operation,
			e.Bucket, e.Status, e.Code, e.In, e.Out, e.Account, e.Served, e.Err))
		a.seen.Broadcast()
	}
}

// passingLog finds the times and identifiers of a line of an access log.
var passingLog = regexp.MustCompile(`\[[^]]*\] (\S+ \S+) ([0-9A-Z]{16}|-) |([0-9A-Za-z+/]{80,}=*)|` +
	`( \S+ \S+ \S+) \d+ \d+ ("[^"]*" ")`)

// withoutTimes replaces the times and identifiers of a line of an access log.
func withoutTimes(line string) string {
	return passingLog.ReplaceAllStringFunc(line, func(part string) string {
		m := passingLog.FindStringSubmatch(part)
		switch {
		case m[2] != "":
			return m[1] + " identifier "
		case m[3] != "":
			return "identifier"
		}
		return m[4] + " times " + m[5]
	})
}

// taken returns the lines since the last call, when all requests that were audited have ended.
func (a *auditor) taken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.observed < a.audited {
		a.seen.Wait()
	}
	lines := a.lines
	a.lines = nil
	return strings.Join(lines, "\n")
}

// passing are the parts of a reply that differ between any two requests.
var passing = regexp.MustCompile(`(?i)<(RequestId|HostId)>[^<]*<|\r\n(x-amz-request-id|x-amz-id-2|date|` +
	`last-modified|x-amz-version-id): [^\r]*|<ServerTime>[^<]*<`)

// exchange sends bytes over a connection of their own, followed by a short request, and returns everything that comes
// back until the connection ends. The lines of each header are sorted, because versitygw writes them in any order.
func (w *world) exchange(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	next := "GET /plain/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	if _, err := c.Write([]byte(text + next)); err != nil {
		w.t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	r, out, head := bufio.NewReader(c), "", strings.HasPrefix(text, "HEAD ")
	for {
		var lines []string
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return out + passing.ReplaceAllString(strings.Join(lines, "")+line, "<$1><")
			}
			if line == "\r\n" {
				break
			}
			lines = append(lines, line)
		}
		n := int64(0)
		for _, line := range lines[1:] {
			if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
				n, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			}
		}
		if strings.HasPrefix(lines[0], "HTTP/1.1 304") || head {
			n = 0
		}
		head = head && strings.HasPrefix(lines[0], "HTTP/1.1 100")
		slices.Sort(lines[1:])
		lead := passing.ReplaceAllString("\r\n"+strings.Join(lines, ""), "\r\n$2")
		body, err := io.ReadAll(io.LimitReader(r, n))
		out += lead + "\r\n" + passing.ReplaceAllString(string(body), "<$1><")
		if err != nil {
			return out + err.Error()
		}
	}
}

// differs sends a request on the way that the server chooses and through versitygw. It returns both results, with the
// lines of the audit log, and whether the fast path took the request.
func (w *world) differs(a *auditor, text string) (ours, theirs string, fast bool) {
	w.t.Helper()
	a.taken()
	ours = w.exchange(text) + "\n" + a.taken()
	theirs = w.exchange(slowly(text)) + "\n" + a.taken()
	return ours, theirs, w.fast(text)
}

// fast reports whether the fast path serves a request.
func (w *world) fast(text string) bool {
	w.t.Helper()
	var rctx fasthttp.RequestCtx
	if rctx.Request.Read(bufio.NewReader(strings.NewReader(text))) != nil {
		return false
	}
	head := rctx.Request.Header.RawHeaders()
	if misframed(&rctx.Request.Header) != "" || len(head) == 0 || bytes.Contains(head, []byte("\x00")) {
		return false
	}
	ctx := w.server.authorizer.app.AcquireCtx(&rctx)
	defer w.server.authorizer.app.ReleaseCtx(ctx)
	rctx.SetUserValue(requestKey, ctx)
	var served bool
	switch path := (fastPath{w.server}); {
	case rctx.IsGet(), rctx.IsHead():
		served, _ = path.get(ctx)
	case rctx.IsPut():
		served, _ = path.put(ctx)
	}
	_ = rctx.Response.CloseBodyStream()
	return served
}

// mustAdd adds accounts with the role user.
func (w *world) mustAdd(names ...string) {
	w.t.Helper()
	for _, name := range names {
		err := w.iam.Add(w.t.Context(), iam.Account{AccessKey: name, Secret: name + "ssecret", Role: iam.RoleUser})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// same compares the two ways of a request.
func (w *world) same(t *testing.T, a *auditor, name string, r rawRequest) (fast bool, status string) {
	t.Helper()
	text := r.text(w.addr)
	ours, theirs, fast := w.differs(a, text)
	if ours != theirs {
		t.Errorf("%s: for\n%.1500s\nthe fast path (%v) replies\n%.3000s\nand versitygw\n%.3000s", name, text, fast, ours,
			theirs)
	}
	_, rest, _ := strings.Cut(ours, "HTTP/1.1 ")
	status = rest[:min(3, len(rest))]
	if strings.Contains(ours, "{HostID: ") && status[:1] == "2" {
		t.Errorf("%s: the audit log has no identifier of the host: %s", name, ours)
	}
	return fast, status
}

// expire ends a service account.
func (w *world) expire(key string, at time.Time) {
	w.t.Helper()
	if err := w.iam.UpdateKey(w.t.Context(), key, iam.KeyChange{Expires: &at}); err != nil {
		w.t.Fatal(err)
	}
}
