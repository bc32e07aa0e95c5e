// SPDX-License-Identifier: Apache-2.0

// Package flow_test uses the API of the console as its pages do, against a running server.
package flow_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/test/console/started"
)

func TestTheConsoleFromLogInToLogOut(t *testing.T) {
	s := started.Run(t, nil)
	b := s.Root()
	var in struct {
		User  string
		Admin bool
		Pages []string
	}
	b.Must("GET", "session", nil).Into(&in)
	if in.User != started.RootUser || !in.Admin || !slices.Contains(in.Pages, "users") {
		t.Errorf("%+v", in)
	}
	bucketFlow(t, b)
	objectFlow(t, b)
	versionFlow(t, b)
	uploadFlow(t, b)
	liveFlow(t, s, b)
	userFlow(t, s, b)
	serverFlow(t, b)
	b.Must("DELETE", "session", nil)
	if r := b.JSON("GET", "session", nil); r.Status != http.StatusUnauthorized || r.Code() != "NotLoggedIn" {
		t.Errorf("%d %s after the log out", r.Status, r.Body)
	}
}

func bucketFlow(t *testing.T, b *started.Browser) {
	if r := b.JSON("POST", "buckets", map[string]any{"name": "models", "versioning": true}); r.Status != 201 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := b.JSON("POST", "buckets", map[string]any{"name": "models"}); r.Status != 409 {
		t.Errorf("the same bucket twice: %d %s", r.Status, r.Body)
	}
	b.Must("PUT", "buckets/models/tags", map[string]any{"tags": map[string]string{"team": "vision"}})
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",` +
		`"Resource":"arn:aws:s3:::models/public/*"}]}`
	var v struct {
		Valid    bool
		Problems []struct{ Line, Column int }
	}
	b.Must("POST", "buckets/models/policy/validate", map[string]string{"policy": policy}).Into(&v)
	if !v.Valid {
		t.Errorf("%+v", v)
	}
	b.Must("POST", "buckets/models/policy/validate", map[string]string{"policy": "{\n  \"Version\": }"}).Into(&v)
	if v.Valid || len(v.Problems) != 1 || v.Problems[0].Line != 2 || v.Problems[0].Column != 14 {
		t.Errorf("%+v", v)
	}
	b.Must("POST", "buckets/models/policy/validate", map[string]string{"policy": `{"Version":"2012-10-17","Statement":[` +
		`{"Effect":"Perhaps","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::models/*"}]}`}).Into(&v)
	if v.Valid {
		t.Error("an unknown effect is valid")
	}
	b.Must("PUT", "buckets/models/policy", map[string]string{"policy": policy})
	var d struct {
		Versioning string
		Tags       map[string]string
		Policy     string
		Lifecycle  struct{ Supported bool }
		May        map[string]bool
	}
	b.Must("GET", "buckets/models", nil).Into(&d)
	if d.Versioning != "enabled" || d.Tags["team"] != "vision" || d.Policy != policy || !d.May["policy"] {
		t.Errorf("%+v", d)
	}
	b.Must("DELETE", "buckets/models/policy", nil)
	b.Must("PUT", "buckets/models/versioning", map[string]string{"status": "suspended"})
	b.Must("PUT", "buckets/models/versioning", map[string]string{"status": "enabled"})
}

func objectFlow(t *testing.T, b *started.Browser) {
	b.Must("POST", "buckets", map[string]any{"name": "data"})
	odd := []string{"a//b", "../up", "space and +plus", "ünïcode/日本", "<script>alert(1)</script>", "tab\there", "%2e%2e/x"}
	for _, key := range odd {
		if r := b.Put("data", key, "content of "+key, map[string]string{"Content-Type": "text/html",
			"X-Object-Metadata": base64.StdEncoding.EncodeToString([]byte(`{"note":"<i>x</i>"}`))}); r.Status != 200 {
			t.Fatalf("%q: %d %s", key, r.Status, r.Body)
		}
	}
	var page struct {
		Objects []struct {
			Key  string
			Size int64
		}
		Prefixes []string
		Next     string
	}
	b.Must("GET", "buckets/data/objects?delimiter=", nil).Into(&page)
	var keys []string
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
	}
	slices.Sort(odd)
	if !slices.Equal(keys, odd) {
		t.Errorf("%q, expected %q", keys, odd)
	}
	for _, key := range odd {
		q := "key=" + url.QueryEscape(key)
		r := b.Must("GET", "buckets/data/content?"+q, nil)
		if string(r.Body) != "content of "+key {
			t.Errorf("%q: %q", key, r.Body)
		}
		var o struct {
			Type     string
			Metadata map[string]string
		}
		b.Must("GET", "buckets/data/object?"+q, nil).Into(&o)
		if o.Type != "text/html" || o.Metadata["note"] != "<i>x</i>" {
			t.Errorf("%q: %+v", key, o)
		}
	}
	b.Must("GET", "buckets/data/objects?search=SCRIPT", nil).Into(&page)
	if len(page.Objects) != 1 || page.Objects[0].Key != odd[slices.Index(odd, "<script>alert(1)</script>")] {
		t.Errorf("%+v", page)
	}
	r := b.Send(started.Request{Method: "GET", Path: "buckets/data/content?key=a//b",
		Header: map[string]string{"Range": "bytes=8-9"}})
	if r.Status != 206 || string(r.Body) != "of" {
		t.Errorf("%d %q", r.Status, r.Body)
	}
	var del struct {
		Deleted []struct{ Key string }
		Errors  []any
	}
	all := []map[string]string{}
	for _, key := range odd {
		all = append(all, map[string]string{"key": key})
	}
	b.Must("POST", "buckets/data/delete", map[string]any{"objects": all}).Into(&del)
	if len(del.Deleted) != len(odd) || len(del.Errors) != 0 {
		t.Errorf("%+v", del)
	}
	b.Must("DELETE", "buckets/data", nil)
	if r := b.JSON("GET", "buckets/data", nil); r.Status != 404 || r.Code() != "NoSuchBucket" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

func versionFlow(t *testing.T, b *started.Browser) {
	for _, content := range []string{"one", "two"} {
		if r := b.Put("models", "doc.txt", content, nil); r.Status != 200 {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	var d struct {
		Marker bool
		Undo   *struct{ Key, Version string }
	}
	b.Must("DELETE", "buckets/models/object?key=doc.txt", nil).Into(&d)
	if !d.Marker || d.Undo == nil {
		t.Fatalf("%+v", d)
	}
	if r := b.JSON("GET", "buckets/models/object?key=doc.txt", nil); r.Status != 404 || r.Code() != "NoSuchKey" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	var list struct {
		Versions []struct {
			Key, Version   string
			Latest, Marker bool
			Size           int64
		}
	}
	b.Must("GET", "buckets/models/versions?prefix=doc.txt", nil).Into(&list)
	if len(list.Versions) != 3 || !list.Versions[0].Marker || !list.Versions[0].Latest {
		t.Fatalf("%+v", list)
	}
	oldest := list.Versions[2]
	if r := b.JSON("POST", "buckets/models/undelete", map[string]string{"key": "doc.txt",
		"version": oldest.Version}); r.Status != 409 || r.Code() != "NotADeleteMarker" {
		t.Errorf("content as a delete marker: %d %s", r.Status, r.Body)
	}
	b.Must("POST", "buckets/models/undelete", d.Undo)
	if r := b.Must("GET", "buckets/models/content?key=doc.txt", nil); string(r.Body) != "two" {
		t.Errorf("%q", r.Body)
	}
	b.Must("POST", "buckets/models/restore", map[string]string{"key": "doc.txt", "version": oldest.Version})
	if r := b.Must("GET", "buckets/models/content?key=doc.txt", nil); string(r.Body) != "one" {
		t.Errorf("%q", r.Body)
	}
	var link struct{ URL string }
	b.Must("POST", "buckets/models/share", map[string]any{"key": "doc.txt", "seconds": 60}).Into(&link)
	resp, err := http.Get(link.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(text) != "one" {
		t.Errorf("%d %q %v", resp.StatusCode, text, err)
	}
}

func uploadFlow(t *testing.T, b *started.Browser) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 11<<20/16)
	part := 5 << 20
	var up struct {
		Upload   string
		PartSize int64 `json:"part_size"`
		Parts    int
	}
	r := b.JSON("POST", "buckets/models/uploads", map[string]any{"key": "big", "size": len(content), "checksum": "crc32"})
	if r.Status != 201 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	r.Into(&up)
	if up.PartSize != 16<<20 || up.Parts != 1 {
		t.Errorf("%+v", up)
	}
	sum := func(p []byte) string {
		return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(p)))
	}
	piece := func(i int) []byte { return content[i*part : min(len(content), (i+1)*part)] }
	send := func(i int, crc string) *started.Reply {
		return b.Send(started.Request{Method: "PUT", Body: bytes.NewReader(piece(i)), Size: int64(len(piece(i))),
			Path: fmt.Sprintf("buckets/models/part?key=big&upload=%s&number=%d&crc32=%s", url.QueryEscape(up.Upload), i+1,
				url.QueryEscape(crc))})
	}
	if r := send(0, sum([]byte("other"))); r.Status != 400 {
		t.Errorf("a wrong checksum: %d %s", r.Status, r.Body)
	}
	if r := send(0, sum(piece(0))); r.Status != 200 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	// The connection breaks off in the middle of a part: nothing of the part is kept, and the next try succeeds.
	path := fmt.Sprintf("buckets/models/part?key=big&upload=%s&number=2&crc32=%s", url.QueryEscape(up.Upload),
		url.QueryEscape(sum(piece(1))))
	half := io.MultiReader(bytes.NewReader(piece(1)[:part/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	if r, err := b.Try(started.Request{Method: "PUT", Path: path, Body: half, Size: int64(part)}); err == nil {
		t.Errorf("half a part: %d %s", r.Status, r.Body)
	}
	var before struct{ Parts []struct{ Number int } }
	b.Must("GET", "buckets/models/parts?key=big&upload="+url.QueryEscape(up.Upload), nil).Into(&before)
	if len(before.Parts) != 1 {
		t.Errorf("%+v after the cut", before)
	}
	var found struct {
		Uploads []struct{ Key, Upload string }
	}
	b.Must("GET", "buckets/models/uploads?key=big", nil).Into(&found)
	if len(found.Uploads) != 1 || found.Uploads[0].Upload != up.Upload {
		t.Fatalf("%+v", found)
	}
	for i := 1; i < 3; i++ {
		if r := send(i, sum(piece(i))); r.Status != 200 {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	var parts struct {
		Parts []struct {
			Number int    `json:"number"`
			Size   int64  `json:"-"`
			ETag   string `json:"etag"`
			CRC32  string `json:"crc32"`
		}
	}
	b.Must("GET", "buckets/models/parts?key=big&upload="+url.QueryEscape(up.Upload), nil).Into(&parts)
	if len(parts.Parts) != 3 || parts.Parts[1].CRC32 != sum(piece(1)) {
		t.Fatalf("%+v", parts)
	}
	b.Must("POST", "buckets/models/complete", map[string]any{"key": "big", "upload": up.Upload, "parts": parts.Parts})
	if r := b.Must("GET", "buckets/models/content?key=big", nil); !bytes.Equal(r.Body, content) {
		t.Errorf("%d bytes", len(r.Body))
	}
}

// event reads one server-sent event.
func event(t *testing.T, r *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			data = strings.TrimPrefix(line, "data: ")
		case line == "" && name != "":
			return name, data
		}
	}
}

func liveFlow(t *testing.T, s *started.Server, b *started.Browser) {
	if r := b.Put("models", "empty", "", nil); r.Status != 200 {
		t.Errorf("an empty object: %d %s", r.Status, r.Body)
	}
	s.AddUser("watcher", iam.RoleUser)
	w := s.LogIn("watcher", "watcher-secret")
	all, own := b.Stream("live"), w.Stream("live")
	defer all.Body.Close()
	defer own.Body.Close()
	if kind := all.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
		t.Errorf("%s", kind)
	}
	type sample struct {
		S3  struct{ Requests float64 }
		CPU float64
		// Memory is 0 for users who do not see the server.
		Memory int64
	}
	readAll, readOwn := bufio.NewReader(all.Body), bufio.NewReader(own.Body)
	if name, data := event(t, readAll); name != "history" || data[0] != '[' {
		t.Errorf("%s %s", name, data)
	}
	event(t, readOwn)
	var x, y sample
	for _, one := range []struct {
		r    *bufio.Reader
		into *sample
	}{{readAll, &x}, {readOwn, &y}} {
		if name, data := event(t, one.r); name != "sample" || json.Unmarshal([]byte(data), one.into) != nil {
			t.Errorf("%s %s", name, data)
		}
	}
	if x.Memory == 0 || y.Memory != 0 || y.S3.Requests != 0 {
		t.Errorf("%+v %+v", x, y)
	}
	b.Must("DELETE", "users/watcher", nil) // ends the session, and the stream with it
	for {
		if name, data := event(t, readOwn); name == "end" {
			if data != `{"reason":"expired"}` {
				t.Errorf("%s", data)
			}
			break
		}
	}
}

func userFlow(t *testing.T, s *started.Server, b *started.Browser) {
	var made struct {
		SecretKey string `json:"secret_key"`
	}
	if r := b.JSON("POST", "users", map[string]string{"access_key": "alice", "role": "user"}); r.Status != 201 {
		t.Fatalf("%d %s", r.Status, r.Body)
	} else if r.Into(&made); len(made.SecretKey) < 16 {
		t.Errorf("%s", r.Body)
	}
	alice := s.LogIn("alice", made.SecretKey)
	var list struct{ Buckets []struct{ Name string } }
	alice.Must("GET", "buckets", nil).Into(&list)
	if len(list.Buckets) != 0 {
		t.Errorf("%+v", list)
	}
	b.Must("POST", "grants", iam.Grant{Bucket: "models", User: "alice", Access: iam.AccessRead, Prefix: "public/"})
	alice.Must("GET", "buckets", nil).Into(&list)
	if len(list.Buckets) != 1 {
		t.Errorf("%+v", list)
	}
	if r := alice.JSON("GET", "buckets/models/objects?prefix=public/", nil); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := alice.JSON("GET", "buckets/models/objects?prefix=", nil); r.Status != 403 || r.Code() != "AccessDenied" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	b.Must("POST", "revoke", map[string]any{"bucket": "models", "user": "alice"})
	b.Must("PATCH", "users/alice", map[string]string{"secret_key": ""})
	if r := alice.JSON("GET", "session", nil); r.Status != 401 {
		t.Errorf("a session outlives its secret: %d", r.Status)
	}
	b.Must("DELETE", "users/alice", nil)
}

func serverFlow(t *testing.T, b *started.Browser) {
	for _, route := range []string{"overview", "rates", "transfers", "users", "machine", "benchmarks", "cluster",
		"config", "buckets"} {
		b.Must("GET", route, nil)
	}
	var tr struct {
		Transfers []struct {
			Operation, Bucket, Key, Account string
			Bytes                           int64
			Routes                          []struct{ Bytes int64 }
		}
	}
	b.Must("GET", "transfers?limit=1000", nil).Into(&tr)
	if !slices.ContainsFunc(tr.Transfers, func(x struct {
		Operation, Bucket, Key, Account string
		Bytes                           int64
		Routes                          []struct{ Bytes int64 }
	}) bool {
		return x.Operation == "GetObject" && x.Key == "big" && x.Bytes == 11<<20 && x.Account == started.RootUser &&
			len(x.Routes) == 1
	}) {
		t.Errorf("%+v", tr.Transfers)
	}
	text := string(b.Must("GET", "config", nil).Body)
	if strings.Contains(text, started.RootPassword) || !strings.Contains(text, "********") {
		t.Error("the configuration shows a secret")
	}
}
