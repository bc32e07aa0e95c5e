// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// betweenStore lets something happen when the front end has judged a change, and before the store makes it.
type betweenStore struct {
	*model.Store
	then atomic.Pointer[func()]
}

func (s *betweenStore) happen() {
	if f := s.then.Swap(nil); f != nil {
		(*f)()
	}
}

func (s *betweenStore) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	s.happen()
	return s.Store.Delete(ctx, d)
}

func (s *betweenStore) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) ([]object.Deleted,
	[]error) {
	s.happen()
	return s.Store.DeleteMany(ctx, bucket, ds)
}

func (s *betweenStore) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	s.happen()
	return s.Store.SetAttributes(ctx, ref, change)
}

func (s *betweenStore) Put(ctx context.Context, p object.Put) (object.Info, error) {
	s.happen()
	return s.Store.Put(ctx, p)
}

func (s *betweenStore) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	s.happen()
	return s.Store.CompleteUpload(ctx, c)
}

func (s *betweenStore) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	s.happen()
	return s.Store.Copy(ctx, c)
}

func retention(mode string, days int) []byte {
	return []byte(fmt.Sprintf("<Retention><Mode>%s</Mode><RetainUntilDate>%s</RetainUntilDate></Retention>", mode,
		time.Now().AddDate(0, 0, days).UTC().Format(time.RFC3339)))
}

func (w *world) put5(path string, body []byte, status int, headers ...string) *reply {
	w.t.Helper()
	return w.must(status, "PUT", path, body, append(headers, "Content-MD5", md5Base64(string(body)))...)
}

// TestLocksThatComeInBetweenHold places a lock after the front end has looked and before the store changes anything.
func TestLocksThatComeInBetweenHold(t *testing.T) {
	hold, free := []byte("<LegalHold><Status>ON</Status></LegalHold>"),
		[]byte("<LegalHold><Status>OFF</Status></LegalHold>")
	for name, x := range map[string]struct {
		before, lock []byte // retention that it has, and what comes in between
		sub          string
		act          func(w *world, path string) *reply
	}{
		"hold, delete": {nil, hold, "legal-hold", func(w *world,
			path string) *reply {
			return w.do("DELETE", path, nil)
		}},
		"compliance, delete": {nil, retention("COMPLIANCE", 1), "retention",
			func(w *world, path string) *reply { return w.do("DELETE", path, nil) }},
		"governance, delete": {nil, retention("GOVERNANCE", 1), "retention",
			func(w *world, path string) *reply { return w.do("DELETE", path, nil) }},
		"compliance, delete with bypass": {nil, retention("COMPLIANCE", 1), "retention", func(w *world, path string) *reply {
			return w.do("DELETE", path, nil, "x-amz-bypass-governance-retention", "true")
		}},
		"compliance, weaken with bypass": {retention("GOVERNANCE", 1), retention("COMPLIANCE", 2), "retention",
			func(w *world, path string) *reply {
				body := retention("GOVERNANCE", 1)
				return w.do("PUT", strings.Replace(path, "?", "?retention&", 1), body, "x-amz-bypass-governance-retention", "true",
					"Content-MD5", md5Base64(string(body)))
			}},
		"longer, shorten": {retention("GOVERNANCE", 1), retention("GOVERNANCE", 9), "retention",
			func(w *world, path string) *reply {
				body := retention("GOVERNANCE", 2)
				return w.do("PUT", strings.Replace(path, "?", "?retention&", 1), body, "Content-MD5", md5Base64(string(body)))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &betweenStore{Store: model.New()}
			w := start(t, s, nil)
			w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
			path := "/bucket/key?versionId=" + w.must(200, "PUT", "/bucket/key", []byte("x")).Header.Get("x-amz-version-id")
			if x.before != nil {
				w.put5(strings.Replace(path, "?", "?retention&", 1), x.before, 200)
			}
			w.put5(strings.Replace(path, "?", "?legal-hold&", 1), free, 200)
			then := func() {
				headers := []string{"x-amz-bypass-governance-retention", "true"}
				w.put5(strings.Replace(path, "?", "?"+x.sub+"&", 1), x.lock, 200, headers...)
			}
			s.then.Store(&then)
			if r := x.act(w, path); r.StatusCode != 403 {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
			w.must(200, "GET", path, nil)
		})
	}
}

// TestManyDeletionsKeepWhatIsLocked deletes many versions at once, of which one is locked in between.
func TestManyDeletionsKeepWhatIsLocked(t *testing.T) {
	s := &betweenStore{Store: model.New()}
	w := start(t, s, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	var objects string
	versions := map[string]string{}
	for _, key := range []string{"a", "b"} {
		versions[key] = w.must(200, "PUT", "/bucket/"+key, []byte("x")).Header.Get("x-amz-version-id")
		objects += fmt.Sprintf("<Object><Key>%s</Key><VersionId>%s</VersionId></Object>", key, versions[key])
	}
	then := func() {
		w.put5("/bucket/a?legal-hold&versionId="+versions["a"], []byte("<LegalHold><Status>ON</Status></LegalHold>"), 200)
	}
	s.then.Store(&then)
	doc := "<Delete>" + objects + "</Delete>"
	r := w.must(200, "POST", "/bucket?delete", []byte(doc), "Content-MD5", md5Base64(doc))
	if !strings.Contains(string(r.body), "<Deleted>") || !strings.Contains(string(r.body), "<Code>AccessDenied</Code>") {
		t.Errorf("%s", r.body)
	}
	w.must(200, "GET", "/bucket/a?versionId="+versions["a"], nil)
	if r := w.do("GET", "/bucket/b?versionId="+versions["b"], nil); r.StatusCode < 400 {
		t.Errorf("what is not locked was kept: %d", r.StatusCode)
	}
}

// TestAHoldHoldsWhenItsRetentionIsOver: a legal hold does not end with the retention beside it.
func TestAHoldHoldsWhenItsRetentionIsOver(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	version := w.must(200, "PUT", "/bucket/key", []byte("x"), "x-amz-object-lock-legal-hold",
		"ON").Header.Get("x-amz-version-id")
	ref := object.Ref{Bucket: "bucket", Key: "key", Version: version}
	if err := w.store.SetAttributes(t.Context(), ref, func(a map[string]string) error {
		a[attrRetention] = `{"Mode":"COMPLIANCE","RetainUntilDate":"2020-01-01T00:00:00Z"}`
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.must(403, "DELETE", "/bucket/key?versionId="+version, nil)
	w.must(403, "DELETE", "/bucket/key?versionId="+version, nil, "x-amz-bypass-governance-retention", "true")
	w.put5("/bucket/key?legal-hold&versionId="+version, []byte("<LegalHold><Status>OFF</Status></LegalHold>"), 200)
	w.must(204, "DELETE", "/bucket/key?versionId="+version, nil)
}

// TestDefaultRetentionIsThatOfTheCommit sets a bucket's default while an object is on its way: as an upload, a draft, a
// PUT, a copy, a form.
func TestDefaultRetentionIsThatOfTheCommit(t *testing.T) {
	s := &betweenStore{Store: model.NewIn(storetest.Dir(t))}
	w := start(t, s, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	set := func(rule string) func() {
		return func() {
			conf := `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>` + rule +
				`</ObjectLockConfiguration>`
			w.put5("/bucket?object-lock", []byte(conf), 200)
		}
	}
	const rule = `<Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>3</Days></DefaultRetention></Rule>`
	w.must(200, "PUT", "/bucket/source", []byte("x"))
	retained := func(key string, want string) {
		t.Helper()
		h := w.must(200, "HEAD", "/bucket/"+key, nil).Header
		if got := h.Get("x-amz-object-lock-mode"); got != want {
			t.Errorf("%s: mode %q, expected %q", key, got, want)
		}
		if until, err := time.Parse(time.RFC3339, h.Get("x-amz-object-lock-retain-until-date")); want != "" &&
			(err != nil || time.Until(until) < 71*time.Hour) {
			t.Errorf("%s: until %v", key, h)
		}
	}
	upload := func(key string, headers ...string) (complete func()) {
		id := between(string(w.must(200, "POST", "/bucket/"+key+"?uploads", nil, headers...).body), "<UploadId>",
			"</UploadId>")
		etag := w.must(200, "PUT", "/bucket/"+key+"?partNumber=1&uploadId="+id, []byte("part")).Header.Get("ETag")
		return func() {
			w.must(200, "POST", "/bucket/"+key+"?uploadId="+id,
				[]byte("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+etag+
					"</ETag></Part></CompleteMultipartUpload>"))
		}
	}
	before := upload("upload")
	asked := upload("asked", "x-amz-object-lock-mode", "GOVERNANCE", "x-amz-object-lock-retain-until-date",
		time.Now().AddDate(0, 0, 9).UTC().Format(time.RFC3339))
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "bucket", Key: "draft", Size: 5,
		Judge: w.server.Authorizer().JudgeWrite()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("draft")
	_ = f.Close()
	set(rule)()
	before()
	asked()
	if _, err := d.Commit(t.Context(), storetest.Seal([]byte("draft"))); err != nil {
		t.Fatal(err)
	}
	retained("upload", "COMPLIANCE")
	retained("asked", "GOVERNANCE")
	retained("draft", "COMPLIANCE")
	for key, write := range map[string]func(key string){
		"put":  func(key string) { w.must(200, "PUT", "/bucket/"+key, []byte("x")) },
		"copy": func(key string) { w.must(200, "PUT", "/bucket/"+key, nil, "x-amz-copy-source", "bucket/source") },
		"form": func(key string) { w.posted(204, "bucket", key) },
	} {
		set("")()
		then := set(rule)
		s.then.Store(&then)
		write(key)
		retained(key, "COMPLIANCE")
	}
	after := upload("later")
	set("")()
	after()
	retained("later", "")
}

// posted posts a form as root does.
func (w *world) posted(status int, bucket, key string, fields ...string) *reply {
	w.t.Helper()
	return w.postedAs(rootKey, rootSecret, time.Now(), status, bucket, key, fields...)
}

// postedAs posts a form that an account has signed; one without an account has no signature.
func (w *world) postedAs(access, secret string, at time.Time, status int, bucket, key string, fields ...string) *reply {
	w.t.Helper()
	return w.postedOn(at.UTC().Format("20060102"), access, secret, at, status, bucket, key, fields...)
}

// postedOn posts a form whose signature was made with the key of a day.
func (w *world) postedOn(day, access, secret string, at time.Time, status int, bucket, key string,
	fields ...string) *reply {
	w.t.Helper()
	date := at.UTC().Format("20060102T150405Z")
	credential := fmt.Sprintf("%s/%s/%s/s3/aws4_request", access, day, testRegion)
	all := [][2]string{{"key", key}}
	for i := 0; i+1 < len(fields); i += 2 {
		all = append(all, [2]string{fields[i], fields[i+1]})
	}
	if access != "" {
		all = append(all, [2]string{"x-amz-algorithm", "AWS4-HMAC-SHA256"}, [2]string{"x-amz-credential", credential},
			[2]string{"x-amz-date", date})
		conditions := fmt.Sprintf(`{"bucket":%q}`, bucket)
		for _, f := range all {
			conditions += fmt.Sprintf(`,{%q:%q}`, f[0], f[1])
		}
		policy := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf(`{"expiration":%q,"conditions":[%s]}`,
			at.Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z"), conditions)))
		signature := signedWith(secret, day, policy)
		all = append(all, [2]string{"policy", policy}, [2]string{"x-amz-signature", signature})
	}
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	for _, f := range all {
		_ = m.WriteField(f[0], f[1])
	}
	part, _ := m.CreateFormFile("file", "file")
	_, _ = part.Write([]byte("content"))
	_ = m.Close()
	r, err := w.try("", "", "POST", "/"+bucket, body.Bytes(), "Content-Type", m.FormDataContentType())
	if err != nil {
		w.t.Fatal(err)
	}
	if r.StatusCode != status {
		w.t.Errorf("form for %s by %q: status %d, expected %d: %s", key, access, r.StatusCode, status, r.body)
	}
	return r
}

// TestHoldsAndDeletionsOverHTTP lets holds and deletions of the same versions meet: a hold that was acknowledged holds.
func TestHoldsAndDeletionsOverHTTP(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	hold := []byte("<LegalHold><Status>ON</Status></LegalHold>")
	for round := range 100 {
		version := w.must(200, "PUT", "/bucket/key", []byte("x")).Header.Get("x-amz-version-id")
		var held, gone *reply
		var wg sync.WaitGroup
		racers := []func(){
			func() {
				held, _ = w.try(rootKey, rootSecret, "PUT", "/bucket/key?legal-hold&versionId="+version, hold, "Content-MD5",
					md5Base64(string(hold)))
			},
			func() { gone, _ = w.try(rootKey, rootSecret, "DELETE", "/bucket/key?versionId="+version, nil) },
		}
		for i := range racers {
			wg.Go(racers[(i+round)%2])
		}
		wg.Wait()
		if held == nil || gone == nil || (held.StatusCode == 200) == (gone.StatusCode == 204) {
			t.Fatalf("round %d: the hold says %+v, the deletion says %+v", round, held, gone)
		}
		for len(w.events) > 0 {
			<-w.events
		}
	}
}
