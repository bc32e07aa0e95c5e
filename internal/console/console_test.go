// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/iam"
)

func settings(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Inputs{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:9001"
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestTheAPIIsNotReadyBeforeTheStore(t *testing.T) {
	c := New(Options{Config: settings(t, nil)})
	if w := get(t, c, "/console/api/session"); w.Code != 503 || !strings.Contains(w.Body.String(), "NotReady") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(t, c, "/console/"); w.Code != 404 || !strings.Contains(w.Body.String(), "NoPages") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// deadlines is a connection that records its write deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = t
	return nil
}

func TestARequestDoesNotInheritADeadline(t *testing.T) {
	d := &deadlines{httptest.NewRecorder(), time.Unix(1, 0)}
	New(Options{Config: settings(t, nil)}).ServeHTTP(d, httptest.NewRequest(http.MethodGet, "/console/api/session", nil))
	if !d.write.IsZero() {
		t.Errorf("the deadline is %v", d.write)
	}
}

func TestPagesHaveFixedTypesAndETags(t *testing.T) {
	c := New(Options{Config: settings(t, nil), Pages: fstest.MapFS{"index.html": {Data: []byte("<html>")},
		"static/a.js": {Data: []byte("1")}, "static/b.svg": {Data: []byte("<svg/>")}, "LICENSE": {Data: []byte("free")}}})
	for path, want := range map[string]string{"/console/": "text/html; charset=utf-8",
		"/console/buckets/x": "text/html; charset=utf-8", "/console/static/a.js": "text/javascript; charset=utf-8",
		"/console/static/b.svg": "image/svg+xml"} {
		w := get(t, c, path)
		if w.Code != 200 || w.Header().Get("Content-Type") != want ||
			w.Header().Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if again := get(t, c, path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s: %d", path, again.Code)
		}
	}
	for _, path := range []string{"/console/static/missing.js", "/console/static/c.html", "/console/index.html/x.js"} {
		if w := get(t, c, path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/console/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%d", w.Code)
	}
}

func TestHostsOverPlainHTTP(t *testing.T) {
	c := New(Options{Config: settings(t, map[string]string{"console.hosts": "console.example"}), Host: "Node-7"})
	for host, want := range map[string]bool{"127.0.0.1:9001": true, "[::1]:9001": true, "localhost": true,
		"node-7:9001": true, "console.example": true, "CONSOLE.example:80": true, "evil.example": false, "": false,
		"localhost.evil.example": false, "127.0.0.1.evil.example": false} {
		if got := c.knownHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestNamesOfDownloads(t *testing.T) {
	for key, want := range map[string]string{"a/b c.txt": "b%20c.txt", "dir/": "dir", "/": "object", "..": "..",
		"x\r\ny": "x__y", `a"b`: "a%22b", "日本": "%E6%97%A5%E6%9C%AC"} {
		if got := attachment(key); got != "attachment; filename*=UTF-8''"+want {
			t.Errorf("%q: %s", key, got)
		}
	}
}

func TestPartsOfAnUploadAreAtMostTenThousand(t *testing.T) {
	for _, size := range []int64{0, 1, 16 << 20, 160_000 << 20, 160_001 << 20, mostSize} {
		p := partSize(size)
		if n := (size + p - 1) / p; n > mostParts || p > maxPart || p < 5<<20 {
			t.Errorf("%d bytes in %d parts of %d", size, n, p)
		}
	}
}

func TestAFaultOfAPolicyHasItsPlace(t *testing.T) {
	fine := func([]byte, string) error { return nil }
	for text, want := range map[string]policyProblem{"{\n \"a\": x}": {Line: 2, Column: 7}, "": {Line: 1, Column: 1},
		"{\"é\": }": {Line: 1, Column: 7}} {
		all := checkPolicy([]byte(text), "b", fine)
		if len(all) != 1 || all[0].Line != want.Line || all[0].Column != want.Column {
			t.Errorf("%q: %+v", text, all)
		}
	}
	if all := checkPolicy([]byte("{}"), "b", func([]byte, string) error { return errors.New("no statement") }); len(
		all) != 1 ||
		all[0].Message != "no statement" {
		t.Errorf("%+v", all)
	}
	if all := checkPolicy([]byte("{}"), "b", fine); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestVersionsAndMarkersAreInOneOrder(t *testing.T) {
	at := time.Unix(100, 0)
	rows := mergeVersions([]versionXML{{Key: "a", Version: "2", Modified: at}, {Key: "b", Version: "1", Latest: true}},
		[]versionXML{{Key: "a", Version: "3", Latest: true, Modified: at}, {Key: "a", Version: "1", Modified: at.Add(-1)},
			{Key: "c", Version: "1", Latest: true}})
	var got []string
	for _, r := range rows {
		got = append(got, r.Key+r.Version)
	}
	if strings.Join(got, " ") != "a3 a2 a1 b1 c1" || !rows[0].Marker || rows[1].Marker {
		t.Errorf("%v", got)
	}
}

func TestUndoNeedsAKeptVersion(t *testing.T) {
	for _, x := range []struct {
		asked, version string
		marker, undo   bool
	}{{"", "v1", true, true}, {"", "null", true, false}, {"v1", "v1", true, false}, {"", "", false, false}} {
		if d := newDeletion("k", x.asked, x.version, x.marker); (d.Undo != nil) != x.undo {
			t.Errorf("%+v: %+v", x, d)
		}
	}
}

func TestLinksLeadToTheServer(t *testing.T) {
	for _, x := range []struct{ endpoint, host, want string }{
		{"http://127.0.0.1:9000", "10.0.0.5:9001", "127.0.0.1:9000"},
		{"http://node-7:9000", "10.0.0.5:9001", "10.0.0.5:9000"},
		{"http://node-7:9000", "[fd00::1]:9001", "[fd00::1]:9000"},
		{"http://node-7:9000", "evil.example", "node-7:9000"},
		{"https://node-7:9000", "10.0.0.5:9001", "node-7:9000"},
	} {
		u, err := url.Parse(x.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if got := shareEndpoint(u, x.host).Host; got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

func TestErrorsHaveTheirStatus(t *testing.T) {
	for err, want := range map[error]int{iam.ErrAccountExists: 409, iam.ErrNoSuchAccount: 404, errors.New("x"): 500} {
		w := httptest.NewRecorder()
		if fail(w, err); w.Code != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			t.Errorf("%v: %d", err, w.Code)
		}
	}
}
