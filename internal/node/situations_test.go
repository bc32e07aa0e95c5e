// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// TestSituations asks a server about each row of the table in three ways: by a signed S3 request, through the door, and
// by the administration socket, as the command nebulaio policy test does. Users, groups, policies and service accounts
// are made through the administration socket, as the commands make them.
func TestSituations(t *testing.T) {
	all := situations()
	if len(all) < 200 {
		t.Fatalf("%d situations, expected at least 200", len(all))
	}
	dir, socket := filepath.Join(t.TempDir(), "store"), filepath.Join(shortDir(t), "s")
	flags := map[string]string{"data": dir, "gpudirect.enabled": "true", "gpudirect.socket": socket}
	server := runServer(t, flags)
	admin, err := Administer(t.Context(), settings(t, flags))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	if !admin.Running() {
		t.Fatal("the commands do not find the server")
	}
	var found wire.Discovery
	askForDoor(t, server.Started, &found)
	h := &hall{server: server, admin: admin, socket: socket, store: found.Store}
	h.root(t, http.MethodPut, "shared", "", nil, "")
	door, answers := 0, 0
	for i := range all {
		s := &all[i]
		who := h.prepare(t, i, s)
		name := fmt.Sprintf("row %d, %s: %s on %s with %q", i+1, s.n, s.do, s.on, s.with)
		if got, detail := h.overS3(t, s, who); got != s.want {
			t.Errorf("%s: S3 allows it: %v, expected %v: %s", name, got, s.want, detail)
		}
		if got, detail := h.byCommand(t, s, who); got != s.want {
			t.Errorf("%s: the command allows it: %v, expected %v: %s", name, got, s.want, detail)
		}
		if got, asked := h.throughDoor(t, s, who); asked {
			door++
			if got != s.want {
				t.Errorf("%s: the door allows it: %v, expected %v", name, got, s.want)
			}
		}
		answers += 2
	}
	t.Logf("%d situations: %d answers by S3 and by command, %d through the door", len(all), answers, door)
	if door < 100 {
		t.Errorf("the door was asked %d times, expected at least 100", door)
	}
}

// hall is a server with all its entrances.
type hall struct {
	server        *running
	admin         Admin
	socket, store string
}

// keys sign the requests of a situation.
type keys struct{ access, secret string }

// prepare makes the user, the policies, the bucket and the object of a situation.
func (h *hall) prepare(t *testing.T, i int, s *situation) keys {
	t.Helper()
	ctx := t.Context()
	user, bucket := fmt.Sprintf("user-%d", i), "shared"
	if s.bucket != "" || s.owns || s.acl != "" {
		bucket = fmt.Sprintf("bucket-%d", i)
	}
	if s.do == "" {
		s.do = "s3:GetObject"
	}
	if s.on == "" {
		s.on = "B/k"
	}
	if s.role == "" {
		s.role = iam.RoleUser
	}
	names := map[string]string{"B": bucket, "U": user, "N": fmt.Sprintf("new-%d", i)}
	fill := func(text string) string {
		return regexp.MustCompile(`\b[BUN]\b`).ReplaceAllStringFunc(text, func(n string) string { return names[n] })
	}
	s.on, s.with = fill(s.on), fill(s.with)
	who := keys{user, "secret-of-" + user}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("row %d, %s: %v", i+1, s.n, err)
		}
	}
	must(h.admin.AddUser(ctx, iam.Account{AccessKey: who.access, Secret: who.secret, Role: iam.RoleUserPlus}))
	switch {
	case s.owns:
		h.as(t, who, http.MethodPut, bucket, "", nil, "")
	case s.acl != "":
		h.root(t, http.MethodPut, bucket, "", http.Header{"X-Amz-Acl": {s.acl},
			"X-Amz-Object-Ownership": {"BucketOwnerPreferred"}}, "")
	case bucket != "shared":
		h.root(t, http.MethodPut, bucket, "", nil, "")
	}
	must(h.admin.UpdateUser(ctx, user, iam.Change{Role: &s.role}))
	if s.bucket != "" {
		h.root(t, http.MethodPut, bucket+"?policy", "", nil, fill(documentOf(s.bucket)))
	}
	if b, key, ok := strings.Cut(s.on, "/"); ok && strings.HasPrefix(s.do, "s3:Get") || s.do == "s3:PutObjectTagging" {
		header := http.Header{}
		if key == "red" {
			header.Set("X-Amz-Tagging", "team=red")
		}
		h.root(t, http.MethodPut, b, key, header, "content")
	}
	put := func(to iam.Holder, name, statements string) {
		t.Helper()
		if statements == "" {
			return
		}
		if _, err := h.admin.PutPolicy(ctx, name, fill(documentOf(statements))); err != nil {
			must(err)
		}
		_, err := h.admin.Attach(ctx, to, []string{name})
		must(err)
	}
	put(iam.Holder{User: user}, "policy-of-"+user, s.user)
	put(iam.Holder{User: user}, "second-of-"+user, s.second)
	if s.built != "" {
		_, err := h.admin.Attach(ctx, iam.Holder{User: user}, []string{s.built})
		must(err)
	}
	if s.group != "" {
		_, err := h.admin.AddMembers(ctx, "group-of-"+user, []string{user})
		must(err)
		put(iam.Holder{Group: "group-of-" + user}, "group-policy-of-"+user, s.group)
	}
	if s.key == "" {
		return who
	}
	key := iam.Account{AccessKey: "key-of-" + user, Secret: "secret-of-key", Parent: user}
	if s.key != free {
		key.SessionPolicy = fill(documentOf(s.key))
	}
	must(h.admin.AddKey(ctx, key))
	return keys{key.AccessKey, key.Secret}
}

func documentOf(statements string) string {
	return `{"Version":"2012-10-17","Statement":[` + statements + `]}`
}

// root sends a request of the operator, which has to succeed.
func (h *hall) root(t *testing.T, method, bucket, key string, header http.Header, body string) {
	t.Helper()
	h.as(t, keys{h.server.AccessKey, h.server.SecretKey}, method, bucket, key, header, body)
}

func (h *hall) as(t *testing.T, who keys, method, bucket, key string, header http.Header, body string) {
	t.Helper()
	if status, text := h.send(t, who, method, bucket, key, nil, header, body); status/100 != 2 {
		t.Fatalf("%s %s/%s: %d %s", method, bucket, key, status, text)
	}
}

// send sends a signed request. The bucket can have a sub-resource, such as bucket?policy.
func (h *hall) send(t *testing.T, who keys, method, bucket, key string, query url.Values, header http.Header,
	body string) (int, string) {
	t.Helper()
	bucket, sub, has := strings.Cut(bucket, "?")
	u, err := url.Parse(h.server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + bucket
	if key != "" {
		u.Path += "/" + key
	}
	if query == nil {
		query = url.Values{}
	}
	if has {
		query.Set(sub, "")
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	req, err := http.NewRequestWithContext(t.Context(), method, u.String(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	sum := sha256.Sum256([]byte(body))
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	resp, err := http.DefaultClient.Do(signer.SignV4(*req, who.access, who.secret, "", h.server.Region))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// s3Requests are the requests of actions: method, sub-resource and body.
var s3Requests = map[string][3]string{
	"s3:GetObject": {"GET"}, "s3:PutObject": {"PUT", "", "content"}, "s3:DeleteObject": {"DELETE"},
	"s3:ListBucket":       {"GET"},
	"s3:GetObjectVersion": {"GET", "versionId=null"}, "s3:GetObjectTagging": {"GET", "tagging"},
	"s3:PutObjectTagging": {"PUT", "tagging",
		`<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>`},
	"s3:GetBucketPolicy": {"GET", "policy"}, "s3:GetBucketVersioning": {"GET", "versioning"},
	"s3:PutBucketVersioning": {"PUT", "versioning",
		`<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>`},
	"s3:GetBucketTagging": {"GET", "tagging"}, "s3:ListBucketVersions": {"GET", "versions"},
	"s3:ListBucketMultipartUploads": {"GET", "uploads"}, "s3:GetBucketAcl": {"GET", "acl"},
	"s3:GetBucketLocation": {"GET", "location"}, "s3:CreateBucket": {"PUT"}, "s3:ListAllMyBuckets": {"GET"},
}

// overS3 sends the request of a situation, and returns whether it was allowed.
func (h *hall) overS3(t *testing.T, s *situation, who keys) (bool, string) {
	t.Helper()
	r, ok := s3Requests[s.do]
	if !ok {
		t.Fatalf("%s: no request has this action", s.do)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(s.on, "*"), "/")
	query, header := url.Values{}, http.Header{}
	if name, value, _ := strings.Cut(r[1], "="); name != "" {
		query.Set(name, value)
	}
	for name, value := range valuesOf(s.with) {
		switch _, of, _ := strings.Cut(name, ":"); {
		case strings.HasPrefix(name, "s3:RequestObjectTag/"):
			header.Set("X-Amz-Tagging", strings.TrimPrefix(name, "s3:RequestObjectTag/")+"="+value)
		case name == "aws:UserAgent":
			header.Set("User-Agent", value)
		case strings.HasPrefix(of, "x-amz-"):
			header.Set(of, value)
		default:
			query.Set(of, value)
		}
	}
	status, text := h.send(t, who, r[0], bucket, key, query, header, r[2])
	switch {
	case status == http.StatusForbidden:
		if !strings.Contains(text, "AccessDenied") {
			t.Errorf("%s: refused for another reason: %s", s.n, text)
		}
		return false, text
	case status/100 != 2 && status != http.StatusNotFound:
		t.Errorf("%s: status %d: %s", s.n, status, text)
	}
	return true, text
}

func valuesOf(with string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Fields(with) {
		name, value, _ := strings.Cut(pair, "=")
		out[name] = value
	}
	return out
}

// byCommand asks as the command nebulaio policy test does.
func (h *hall) byCommand(t *testing.T, s *situation, who keys) (bool, string) {
	t.Helper()
	a, err := h.admin.TestPolicy(t.Context(), Question{AccessKey: who.access, Action: s.do, Resource: s.on,
		Values: valuesOf(s.with)})
	if err != nil {
		t.Fatalf("%s: %v", s.n, err)
	}
	if a.Reason == "" {
		t.Errorf("%s: no reason", s.n)
	}
	return a.Allowed, a.Reason
}

// throughDoor asks the door, if the door has such a request.
func (h *hall) throughDoor(t *testing.T, s *situation, who keys) (allowed, asked bool) {
	t.Helper()
	given := valuesOf(s.with)
	for name := range given {
		if name != "s3:prefix" && name != "s3:delimiter" {
			return false, false
		}
	}
	bucket, key, _ := strings.Cut(s.on, "/")
	host := wire.Device{Index: -1}
	var m wire.Message
	switch s.do {
	case "s3:GetObject", "s3:GetObjectVersion":
		item := wire.OpenItem{Bucket: bucket, Key: key, N: -1}
		if s.do == "s3:GetObjectVersion" {
			item.Version = "null"
		}
		m = &wire.Open{Want: wire.WantStat, Device: host, Items: []wire.OpenItem{item}}
	case "s3:ListBucket":
		m = &wire.List{Bucket: bucket, Prefix: given["s3:prefix"], Delimiter: given["s3:delimiter"]}
	case "s3:PutObject":
		m = &wire.Create{Bucket: bucket, Key: key, Size: 1, Device: host, Want: wire.WantBuffered}
	default:
		return false, false
	}
	k := enter(t, h.socket, h.store, who.access, who.secret)
	defer k.c.Close()
	r, files := k.ask(m)
	for _, f := range files {
		_ = f.Close()
	}
	var failed *wire.Error
	switch r := r.(type) {
	case *wire.Error:
		failed = r
	case *wire.Opened:
		failed = r.Items[0].Err
	}
	return failed == nil || failed.Code != wire.CodeAccessDenied, true
}
