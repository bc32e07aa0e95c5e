// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// startSTS starts a front end that gives temporary keys. The returned function moves the clock by which keys expire.
func startSTS(t *testing.T, change func(*Options)) (w *world, pass func(time.Duration)) {
	t.Helper()
	var by atomic.Int64
	w = start(t, nil, func(o *Options) {
		o.STS = &STS{MaxDuration: 2 * time.Hour, MaxSessions: 100}
		o.Accounts.UseClock(func() time.Time { return time.Now().Add(time.Duration(by.Load())) })
		if change != nil {
			change(o)
		}
	})
	return w, func(d time.Duration) { by.Add(int64(d)) }
}

// stsReply is what a test reads of a reply.
type stsReply struct {
	status         int
	code, message  string
	access, secret string
	token, arn     string
	text           string
}

func (w *world) askSTS(req *http.Request) stsReply {
	w.t.Helper()
	r := w.sent(req)
	var x struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
		Access  string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
		Secret  string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
		Token   string `xml:"AssumeRoleResult>Credentials>SessionToken"`
		ARN     string `xml:"GetCallerIdentityResult>Arn"`
	}
	_ = xml.Unmarshal(r.body, &x) // a reply that is no XML has no fields
	return stsReply{status: r.StatusCode, code: x.Code, message: x.Message, access: x.Access, secret: x.Secret,
		token: x.Token, arn: x.ARN, text: string(r.body)}
}

// sts sends a form that keys have signed for the service sts, or nobody if there are no keys.
func (w *world) sts(p keyPair, form url.Values) stsReply {
	w.t.Helper()
	body := []byte(form.Encode())
	req := w.request(http.MethodPost, "/", body, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if p.access != "" {
		sum := sha256.Sum256(body)
		if err := v4.NewSigner().SignHTTP(context.Background(),
			aws.Credentials{AccessKeyID: p.access, SecretAccessKey: p.secret,
				SessionToken: p.token}, req, hex.EncodeToString(sum[:]), "sts", testRegion, time.Now()); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.askSTS(req)
}

// assume begins a session of keys.
func (w *world) assume(p keyPair, form url.Values) keyPair {
	w.t.Helper()
	form.Set("Action", "AssumeRole")
	r := w.sts(p, form)
	if r.status != http.StatusOK {
		w.t.Fatalf("%d %s", r.status, r.text)
	}
	return keyPair{r.access, r.secret, r.token}
}

// with sends a request that temporary keys have signed.
func (w *world) with(p keyPair, method, path string, body []byte) *reply {
	w.t.Helper()
	req := w.request(method, path, body)
	if p.token != "" {
		req.Header.Set("X-Amz-Security-Token", p.token)
	}
	sum := sha256.Sum256(body)
	sign(w.t, req, p.access, p.secret, hex.EncodeToString(sum[:]))
	return w.sent(req)
}

func TestTemporaryKeysAreRefusedWithAReason(t *testing.T) {
	w, _ := startSTS(t, nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alice-secret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	if err := w.iam.PutPolicy(t.Context(), "no-sessions", []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny",`+
		`"Action":"sts:AssumeRole","Resource":"*"}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.iam.Attach(t.Context(), iam.Holder{User: "alice"}, "no-sessions"); err != nil {
		t.Fatal(err)
	}
	root, alice := rootPass(), keyPair{access: "alice", secret: "alice-secret"}
	ask := func(args ...string) url.Values {
		form := url.Values{"Action": {"AssumeRole"}}
		for i := 0; i+1 < len(args); i += 2 {
			form.Set(args[i], args[i+1])
		}
		return form
	}
	for what, c := range map[string]struct {
		by     keyPair
		form   url.Values
		status int
		code   string
	}{
		"unsigned":        {keyPair{}, ask(), 403, "MissingAuthenticationToken"},
		"unknown":         {keyPair{access: "nobody", secret: "secret-secret"}, ask(), 403, "InvalidClientTokenId"},
		"wrong secret":    {keyPair{access: rootKey, secret: "secret-secret"}, ask(), 403, "SignatureDoesNotMatch"},
		"token of a user": {keyPair{access: rootKey, secret: rootSecret, token: "x"}, ask(), 403, "InvalidClientTokenId"},
		"denied":          {alice, ask(), 403, "AccessDenied"},
		"too long":        {root, ask("DurationSeconds", "7201"), 400, "ValidationError"},
		"too short":       {root, ask("DurationSeconds", "899"), 400, "ValidationError"},
		"bad policy":      {root, ask("Policy", `{"Statement":[]}`), 400, "MalformedPolicyDocument"},
		"unknown policy": {root, ask("PolicyArns.member.1.arn", "arn:aws:iam::aws:policy/nothing"), 400,
			"ValidationError"},
		"unknown action": {root, ask("Action", "GetFederationToken"), 400, "InvalidAction"},
		"no provider": {keyPair{}, ask("Action", "AssumeRoleWithWebIdentity", "WebIdentityToken", "a.b.c"), 400,
			"InvalidIdentityToken"},
		"a form of nothing": {root, url.Values{}, 400, "MissingAction"},
	} {
		if got := w.sts(c.by, c.form); got.status != c.status || got.code != c.code || got.message == "" {
			t.Errorf("%s: %d %s, expected %d %s: %s", what, got.status, got.code, c.status, c.code, got.text)
		}
	}
	if n := w.iam.Sessions().Len(); n != 0 {
		t.Errorf("%d sessions were left", n)
	}
	big := w.request(http.MethodPost, "/", []byte("Action="+strings.Repeat("a", 64<<10)), "Content-Type",
		"application/x-www-form-urlencoded")
	if got := w.askSTS(big); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large form: %d", got.status)
	}
	chunks := w.request(http.MethodPost, "/", []byte("Action=AssumeRole"), "Content-Type",
		"application/x-www-form-urlencoded")
	chunks.ContentLength = -1
	if got := w.askSTS(chunks); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a form in chunks: %d", got.status)
	}
}

func TestOnlyFormsAtTheRootAreForTheTokenService(t *testing.T) {
	w, _ := startSTS(t, func(o *Options) { o.Domains = []string{"s3.test"} })
	w.must(http.StatusOK, http.MethodPut, "/bucket", nil)
	for what, req := range map[string]*http.Request{
		"a bucket": w.request(http.MethodPost, "/bucket", []byte("Action=X"), "Content-Type",
			"application/x-www-form-urlencoded"),
		"another type": w.request(http.MethodPost, "/", []byte("Action=X"), "Content-Type", "text/plain"),
		"a GET":        w.request(http.MethodGet, "/?Action=GetCallerIdentity", nil),
		"a bucket host": w.request(http.MethodPost, "/", []byte("Action=X"), "Content-Type",
			"application/x-www-form-urlencoded"),
	} {
		if what == "a bucket host" {
			req.Host = "bucket.s3.test"
		}
		if got := w.sent(req); strings.Contains(string(got.body), "ErrorResponse") {
			t.Errorf("%s: %s", what, got.body)
		}
	}
}

func TestCallersAreNamed(t *testing.T) {
	w, pass := startSTS(t, nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alice-secret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	alice := keyPair{access: "alice", secret: "alice-secret"}
	session := w.assume(alice, url.Values{"RoleSessionName": {"night-build"}})
	for _, c := range []struct {
		by   keyPair
		want string
	}{
		{rootPass(), "arn:aws:iam::000000000000:root"},
		{alice, "arn:aws:iam::000000000000:user/alice"},
		{session, "arn:aws:sts::000000000000:assumed-role/alice/night-build"},
	} {
		if got := w.sts(c.by, url.Values{"Action": {"GetCallerIdentity"}}); got.arn != c.want {
			t.Errorf("%s, expected %s: %s", got.arn, c.want, got.text)
		}
	}
	e := <-w.events
	if e.Operation != "AssumeRole" || e.Account != "alice" || e.Status != http.StatusOK {
		t.Errorf("%+v", e)
	}
	pass(2 * time.Hour)
	if got := w.sts(session, url.Values{"Action": {"GetCallerIdentity"}}); got.code != "ExpiredToken" ||
		got.status != 403 {
		t.Errorf("%s", got.text)
	}
	if got := w.with(session, http.MethodGet, "/", nil); got.code() != "ExpiredToken" || got.StatusCode != 400 {
		t.Errorf("%s", got.body)
	}
}

// TestSessionPoliciesAreJoined: a session may do what its policies allow together, and its user as well.
func TestSessionPoliciesAreJoined(t *testing.T) {
	w, _ := startSTS(t, nil)
	w.must(http.StatusOK, http.MethodPut, "/bucket", nil)
	w.must(http.StatusOK, http.MethodPut, "/bucket/a", []byte("x"))
	k := w.assume(rootPass(), url.Values{"PolicyArns.member.1.arn": {"arn:aws:iam::aws:policy/writeonly"},
		"Policy": {`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:DeleteObject","Resource":"*"}}`}})
	w.with(k, http.MethodPut, "/bucket/b", []byte("x")).expect(t, http.StatusOK, "")
	w.with(k, http.MethodDelete, "/bucket/b", nil).expect(t, http.StatusNoContent, "")
	w.with(k, http.MethodGet, "/bucket/a", nil).expect(t, http.StatusForbidden, "AccessDenied")
	reads := w.assume(rootPass(), url.Values{"PolicyArns.member.1.arn": {"arn:aws:iam::aws:policy/readonly"}})
	w.with(reads, http.MethodGet, "/bucket/a", nil).expect(t, http.StatusOK, "")
	w.with(reads, http.MethodPut, "/bucket/a", []byte("y")).expect(t, http.StatusForbidden, "AccessDenied")
}

func TestTheTokenIsPartOfTheKeys(t *testing.T) {
	w, _ := startSTS(t, nil)
	w.must(http.StatusOK, http.MethodPut, "/bucket", nil)
	k := w.assume(rootPass(), url.Values{})
	for what, c := range map[string]struct {
		by     keyPair
		status int
		code   string
	}{
		"right":   {k, 200, ""},
		"missing": {keyPair{access: k.access, secret: k.secret}, 403, "InvalidAccessKeyId"},
		"wrong":   {keyPair{k.access, k.secret, "wrong"}, 400, "InvalidToken"},
		"of root": {keyPair{rootKey, rootSecret, k.token}, 400, "InvalidToken"},
	} {
		for _, body := range []string{"small", strings.Repeat("large", 100_000)} {
			if got := w.with(c.by, http.MethodPut, "/bucket/a", []byte(body)); got.StatusCode != c.status ||
				got.code() != c.code {
				t.Errorf("%s: %d %s, expected %d %s", what, got.StatusCode, got.code(), c.status, c.code)
			}
		}
	}
	// A token that is not signed could have been added by anybody.
	req := w.request(http.MethodGet, "/bucket/a", nil)
	sum := sha256.Sum256(nil)
	sign(t, req, k.access, k.secret, hex.EncodeToString(sum[:]))
	req.Header.Set("X-Amz-Security-Token", k.token)
	if got := w.sent(req); got.StatusCode != http.StatusForbidden {
		t.Errorf("an unsigned token: %d %s", got.StatusCode, got.body)
	}
}

func TestTemporaryKeysInDirectoryBuckets(t *testing.T) {
	w, pass := startSTS(t, func(o *Options) { o.Express = &Express{Key: express.NewKey(), Session: time.Minute} })
	w.express(rootPass(), http.MethodPut, testDirectory, nil).expect(t, http.StatusOK, "")
	k := w.assume(rootPass(), url.Values{})
	plain := keyPair{access: k.access, secret: k.secret}
	w.express(plain, http.MethodPut, testDirectory+"/a", []byte("x")).expect(t, http.StatusForbidden, "InvalidAccessKeyId")
	w.express(plain, http.MethodPut, testDirectory+"/a", []byte("x"), "X-Amz-Security-Token", "wrong").
		expect(t, http.StatusBadRequest, "InvalidToken")
	w.express(plain, http.MethodPut, testDirectory+"/a", []byte("x"), "X-Amz-Security-Token", k.token).
		expect(t, http.StatusOK, "")
	inside := w.session(plain, testDirectory, "X-Amz-Security-Token", k.token)
	w.express(inside, http.MethodGet, testDirectory+"/a", nil).expect(t, http.StatusOK, "")
	w.express(inside, http.MethodGet, testDirectory+"?list-type=2", nil).expect(t, http.StatusOK, "") // by versitygw
	reads := w.assume(rootPass(), url.Values{"PolicyArns.member.1.arn": {"arn:aws:iam::aws:policy/readonly"}})
	w.express(keyPair{access: reads.access, secret: reads.secret}, http.MethodPut, testDirectory+"/b", []byte("x"),
		"X-Amz-Security-Token", reads.token).expect(t, http.StatusForbidden, "AccessDenied")
	pass(2 * time.Hour)
	if got := w.express(inside, http.MethodGet, testDirectory+"/a", nil); got.StatusCode == http.StatusOK {
		t.Error("a session of a directory bucket outlived its keys")
	}
}

func TestFederatedNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, subject := range []string{"a", "A", "a b", "a%20b", "a/b", "a:b", "ä", "system:serviceaccount:ns:name",
		"auth0|7", "a%"} {
		name := federated("p", subject)
		if other, twice := seen[name]; twice || !strings.HasPrefix(name, "oidc:p:") || !iam.Federated(name) ||
			strings.ContainsAny(name, " /\"<&") {
			t.Errorf("%q and %q are %q", subject, other, name)
		}
		seen[name] = subject
	}
}
