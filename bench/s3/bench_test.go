// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPresignAsDocumented compares the signature with the example in Amazon's description of presigned URLs.
func TestPresignAsDocumented(t *testing.T) {
	k := credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	got := presignFor(k, at, "GET", "examplebucket.s3.amazonaws.com", "/test.txt", nil, "86400")
	const want = "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
	if !strings.HasSuffix(got, want) {
		t.Errorf("presigned %s, expected the signature %s", got, want)
	}
}

func TestVerifyRefusesWhatWasNotSigned(t *testing.T) {
	sign := func(method, path string, q url.Values) *http.Request {
		return httptest.NewRequest(method, "http://h:1"+presign(rootKeys, time.Now(), method, "h:1", path, q), nil)
	}
	if !verify(rootKeys, sign("GET", "/b/ü k/~+", url.Values{"prefix": {"a/ b"}, "uploads": {""}})) {
		t.Error("a signed request was refused")
	}
	bad := sign("GET", "/b/k", nil)
	bad.Method = "PUT"
	other := sign("GET", "/b/k", nil)
	other.URL.Path = "/b/other"
	for name, r := range map[string]*http.Request{"another method": bad, "another key": other,
		"no signature": httptest.NewRequest("GET", "http://h:1/b/k", nil)} {
		if verify(rootKeys, r) {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want spread
		text string
	}{
		{nil, spread{}, "0.00"},
		{[]float64{7}, spread{7, 7, 7}, "7.00"},
		{[]float64{3, 1, 2}, spread{2, 1, 3}, "2.00 [1.00..3.00]"},
		{[]float64{400, 100, 10, 20}, spread{60, 10, 400}, "60.0 [10.0..400]"},
		{[]float64{0.0123}, spread{0.0123, 0.0123, 0.0123}, "0.012"},
	} {
		if got := spreadOf(c.in); got != c.want || got.String() != c.text {
			t.Errorf("spreadOf(%v) = %+v %q, expected %+v %q", c.in, got, got, c.want, c.text)
		}
	}
}

func TestPercentile(t *testing.T) {
	ten := make([]time.Duration, 10)
	for i := range ten {
		ten[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		in   []time.Duration
		p    float64
		want time.Duration
	}{{nil, 50, 0}, {ten[:1], 99, 1}, {ten, 50, 5}, {ten, 51, 6}, {ten, 99, 10}, {ten, 0, 1}, {ten, 100, 10}} {
		if got := percentile(c.in, c.p); got != c.want {
			t.Errorf("percentile(%v, %v) = %d, expected %d", c.in, c.p, got, c.want)
		}
	}
}

func TestRatiosLeaveOutRoundsThatLackAValue(t *testing.T) {
	got := ratios([]float64{2, 9, 0, 8, 1}, []float64{1, 0, 5, 4})
	if len(got) != 2 || got[0] != 2 || got[1] != 2 {
		t.Errorf("ratios = %v, expected [2 2]", got)
	}
}

func TestSampleArithmetic(t *testing.T) {
	s := sample{Ops: 200, Bytes: 4 << 30, Seconds: 4, ServerCPU: 2}
	for name, c := range map[string][2]float64{
		"rate":      {s.rate(), 50},
		"megabytes": {s.megabytes(), 1073.741824},
		"cpuPerOp":  {s.cpuPerOp(), 10000},
		"cpuPerGiB": {s.cpuPerGiB(), 0.5},
		"no bytes":  {sample{ServerCPU: 1}.cpuPerGiB(), 0},
	} {
		if math.Abs(c[0]-c[1]) > 1e-9 {
			t.Errorf("%s = %v, expected %v", name, c[0], c[1])
		}
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("12 (a server) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 1 2 3"))
	if err != nil || got != 2 {
		t.Errorf("parseStat = %v, %v, expected 2 seconds", got, err)
	}
	for _, bad := range []string{"", "12 (x) S 1 2", "12 (x) S 1 2 3 4 5 6 7 8 9 10 x 50 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) gave no error", bad)
		}
	}
}

// TestClaims computes claims from an invented run: ratios are computed round by round, and a figure that misses its
// goal says so.
func TestClaims(t *testing.T) {
	cpu := func(seconds ...float64) (out []sample) {
		for _, s := range seconds {
			out = append(out, sample{Ops: 16, Bytes: 1 << 30, Seconds: 1, ServerCPU: s})
		}
		return out
	}
	r := &result{
		Rounds: 3, Targets: []string{"bare", "nebulaio", "nebulaio always"}, Memory: map[string]int64{},
		Rows: []*rowResult{{Name: "GET 64 MiB, 4 streams", ByBytes: true, Samples: map[string][]sample{
			"bare": cpu(0.1, 0.2, 0.1), "nebulaio": cpu(0.12, 0.24, 0.11), "nebulaio always": cpu(0.3, 0.6, 0.3)}}},
		Completions: []completion{{Target: "nebulaio", Sizes: completeSizes, Millis: []spread{{1, 1, 1}, {1, 1, 1}},
			Ratio: spread{1, 1, 1}}},
		Keys: &manyKeys{Keys: 1000000, Restart: []float64{0.4, 3, 0.5}, Listings: []listing{
			{Name: "first page", Small: page{Keys: 10000, P50: 1, CPU: 500}, Large: page{Keys: 1000000, P50: 6, CPU: 500},
				Ratio: 1}}},
	}
	r.Claims = r.claims()
	want := []struct {
		start  string
		median float64
		met    bool
	}{
		{"GET 64 MiB, 4 streams: server CPU, nebulaio against bare", 1.2, true},
		{"GET 64 MiB, 4 streams: server CPU, nebulaio always against bare", 3, false},
		{"CompleteMultipartUpload", 1, true},
		{"list, first page: time with 1000000 keys", 6, false},
		{"list, first page: server CPU", 1, true},
		{"restart", 0.5, true},
	}
	if len(r.Claims) != len(want) {
		t.Fatalf("%d claims, expected %d: %+v", len(r.Claims), len(want), r.Claims)
	}
	for i, c := range r.Claims {
		if w := want[i]; !strings.HasPrefix(c.What, w.start) || math.Abs(c.Got.Median-w.median) > 1e-9 || c.met() != w.met {
			t.Errorf("claim %+v met %v, expected %+v", c, c.met(), w)
		}
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"| GET 64 MiB, 4 streams: server CPU, nebulaio always against bare | 3.00 x | ≤ 2.20 " +
		"x | **no** |", "## 1000000 keys", "0.12 [0.11..0.24]"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "plot.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("plot.svg is no XML: %v", err)
		}
	}
	if n := strings.Count(string(svg), "<rect x="); n != 6 {
		t.Errorf("%d bars, expected three targets twice", n)
	}
}

// TestEveryWantedRowExists checks that the table of goals names only rows and targets that are run.
func TestEveryWantedRowExists(t *testing.T) {
	names := map[string]bool{}
	for _, target := range targets("self", "n", "v", "m", "b") {
		names[target.name] = true
	}
	for _, w := range wanted {
		found := false
		for _, r := range rows() {
			if r.Name == w.row {
				found = true
				for _, name := range []string{w.ours, w.theirs} {
					if !names[name] || !strings.Contains(strings.Join(r.only, ","), name) {
						t.Errorf("%q is never run on %q", w.row, name)
					}
				}
			}
		}
		if !found {
			t.Errorf("there is no row %q", w.row)
		}
	}
}

// serve runs the bare server inside the test, so that its CPU time is that of the test.
func serve(t *testing.T, s *bareServer) *target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return &target{name: "bare", host: l.Addr().String()}
}

func TestBareServerKeepsWhatItIsGiven(t *testing.T) {
	data, err := content()
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]*bareServer{"plain": {}, "everything": {md5: true, sync: true, dirs: true}} {
		t.Run(name, func(t *testing.T) {
			mode.root, mode.keys = t.TempDir(), rootKeys
			target := serve(t, mode)
			if fd, err := unix.Open(mode.root, unix.O_TMPFILE|unix.O_WRONLY, 0o600); err == unix.EOPNOTSUPP {
				t.Skip("the file system of the tests has no O_TMPFILE")
			} else if err == nil {
				unix.Close(fd)
			}
			if err := fill(target, data, map[int64]bool{mib: true}); err != nil {
				t.Fatal(err)
			}
			r := row{object: mib, ranged: 128 * kib, streams: 2, ops: 16}
			for i, list := range r.work(target, data, 0) {
				s := newStream(target.host)
				for _, q := range list {
					if err := s.do(q, nil); err != nil {
						t.Fatal(err)
					}
				}
				if s.dialled != 1 {
					t.Errorf("stream %d was connected %d times", i, s.dialled)
				}
				s.close()
			}
			s := newStream(target.host)
			defer s.close()
			put := target.sign("PUT", readKey(mib, 0), nil, data[:10], http.StatusOK, -1) // in place of one that exists
			if err := s.do(put, nil); err != nil {
				t.Fatal(err)
			}
			if mode.md5 && len(s.header.Get("ETag")) != 34 {
				t.Errorf("ETag %q is no MD5", s.header.Get("ETag"))
			}
			if err := s.do(target.sign("GET", readKey(mib, 0), nil, nil, http.StatusOK, 11), nil); err == nil {
				t.Error("10 bytes passed for 11")
			}
			if err := s.do(target.sign("GET", "none", nil, nil, http.StatusOK, -1), nil); err == nil {
				t.Error("an object that is not there was read")
			}
			if err := remove(target, []string{readKey(mib, 0), readKey(mib, 1)}, 2); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(filepath.Join(mode.root, bucket))
			if err != nil || len(left) != readable(mib)-2 {
				t.Errorf("%d objects are left, expected %d (%v)", len(left), readable(mib)-2, err)
			}
		})
	}
}

func TestKeyNames(t *testing.T) {
	for _, n := range []int{10_000, 1_000_000} {
		seen := map[string]bool{}
		for _, i := range []int{0, n/directories - 1, n / directories, n - 1} {
			seen[keyName(i, n)] = true
		}
		if len(seen) != 4 || !strings.HasPrefix(keyName(n-1, n), "all/d0999/") ||
			!strings.HasPrefix(keyName(n/2, n), "all/d0500/") {
			t.Errorf("%d keys: %v", n, seen)
		}
	}
}

func TestRepeated(t *testing.T) {
	if got := string(repeated([]byte("abc"), 7)); got != "abcabca" {
		t.Errorf("repeated = %q", got)
	}
	if got := string(repeated([]byte("abc"), 2)); got != "ab" {
		t.Errorf("repeated = %q", got)
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"--rounds", "0"}, {"--keys", "1500"}, {"--scale", "0"}, {"--rows", "("}, {"x"}} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	o, err := parse([]string{"--rows", "PUT", "--keys", "1000"})
	if err != nil || o.multipart || o.keys != 0 {
		t.Errorf("parse = %+v, %v: rows that were not asked for are run", o, err)
	}
}

func TestTheBuildBeforeIsComparedWithItself(t *testing.T) {
	at := func(rates ...float64) []sample {
		var out []sample
		for _, r := range rates {
			out = append(out, sample{Ops: int64(r), Seconds: 1, ServerCPU: r * 1e-4})
		}
		return out
	}
	run := func(now []sample) comparison {
		r := &result{Targets: []string{"nebulaio", beforeName, beforeAgainName},
			Rows: []*rowResult{{Name: "x", Samples: map[string][]sample{
				"nebulaio": now, beforeName: at(100, 100, 100), beforeAgainName: at(95, 100, 105),
			}}}}
		all := r.compare()
		if len(all) != 1 {
			t.Fatalf("%d comparisons; expected 1", len(all))
		}
		return all[0]
	}
	if c := run(at(96, 99, 98)); !c.holds() {
		t.Errorf("%+v does not hold; expected a build inside the spread to hold", c)
	}
	if c := run(at(90, 91, 92)); c.holds() {
		t.Errorf("%+v holds; expected a slower build not to", c)
	}
	if all := (&result{}).compare(); all != nil {
		t.Errorf("%v without an older build; expected no comparison", all)
	}
}
