// SPDX-License-Identifier: Apache-2.0

package sts_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/test/console/started"
	"github.com/nebulaio/nebulaio/test/issuer"
)

// prepare makes a bucket with objects.
func prepare(t *testing.T, r *rig) {
	t.Helper()
	root := r.s3(rootKeys)
	if err := root.MakeBucket(t.Context(), "models", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "team/a"} {
		if got := (&byS3{r, root}).put("models", key); got != fine {
			t.Fatal(got)
		}
	}
}

// onTeam is a session policy that allows reads below team/.
const onTeam = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject",` +
	`"Resource":"arn:aws:s3:::models/team/*"}]}`

func claims(policies ...string) map[string]any { return map[string]any{"policy": policies} }

// TestTokensOfAnIssuer exchanges tokens for keys, and uses the keys on every way.
func TestTokensOfAnIssuer(t *testing.T) {
	r := newRig(t)
	prepare(t, r)
	company := r.issuers[0]
	exchanged := func(w issuer.Token, policy string) keys {
		t.Helper()
		k, code := r.exchange(company.token(w), policy)
		if code != "" {
			t.Fatalf("%+v: %s", w, code)
		}
		return k
	}

	reads := r.ways(exchanged(issuer.Token{Subject: "reader", Claims: claims("readonly")}, ""))
	writesKeys := exchanged(issuer.Token{Subject: "writer", Claims: claims("readwrite", "unknown")}, "")
	writes := r.ways(writesKeys)
	r.expect("readonly", reads, "a", fine, denied)
	r.expect("readwrite", writes, "a", fine, fine)

	// A session policy narrows what the policies allow.
	limited := r.ways(exchanged(issuer.Token{Subject: "writer", Claims: claims("readwrite")}, onTeam))
	r.expect("session policy", limited, "team/a", fine, denied)
	r.expect("session policy", limited, "a", denied, denied)

	// Every provider has its own audience and policies. The claim policy does not count here.
	ci, code := r.exchange(r.issuers[1].token(issuer.Token{Subject: "job", Audience: []string{"builds"},
		Claims: claims("readwrite")}), "")
	if code != "" {
		t.Fatal(code)
	}
	r.expect("the other provider", r.ways(ci), "a", fine, denied)

	for what, w := range map[string]struct {
		token issuer.Token
		code  string
	}{
		"expired": {issuer.Token{Subject: "x", Seconds: -1, Claims: claims("readonly")}, "ExpiredTokenException"},
		"wrong audience": {issuer.Token{Subject: "x", Audience: []string{"builds"}, Claims: claims("readonly")},
			"InvalidIdentityToken"},
		"unknown issuer": {issuer.Token{Subject: "x", Issuer: "https://other", Claims: claims("readonly")},
			"InvalidIdentityToken"},
		"another's key": {issuer.Token{Subject: "x", Issuer: r.issuers[1].url, Audience: []string{"builds"}},
			"InvalidIdentityToken"},
		"no policies":     {issuer.Token{Subject: "x"}, "AccessDenied"},
		"unknown policy":  {issuer.Token{Subject: "x", Claims: claims("unknown")}, "AccessDenied"},
		"malformed claim": {issuer.Token{Subject: "x", Claims: map[string]any{"policy": 7}}, "InvalidIdentityToken"},
	} {
		if k, code := r.exchange(company.token(w.token), ""); code != w.code {
			t.Errorf("%s: %v %q, expected %s", what, k.access, code, w.code)
		}
	}
	if _, code := r.exchange("a.b.c", ""); code != "InvalidIdentityToken" {
		t.Errorf("no token: %s", code)
	}
	if _, code := r.exchange(company.token(issuer.Token{Subject: "x", Claims: claims("readonly")}), "{}"); code !=
		"MalformedPolicyDocument" {
		t.Errorf("a bad policy: %s", code)
	}

	// A client finds the door through S3, with the same keys.
	found, err := r.sys.NewClient(nebulaio.ClientOptions{Endpoint: r.s.Endpoint, AccessKey: writesKeys.access,
		SecretKey: writesKeys.secret, SessionToken: writesKeys.token, Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Status(t.Context()); got.Door != r.s.Config.GPUDirect.Socket {
		t.Errorf("%+v", got)
	}
	if err := found.Close(); err != nil {
		t.Error(err)
	}

	// Without the right token, keys of a session are refused. A token does not go with other keys.
	for what, k := range map[string]keys{
		"no token":             {writesKeys.access, writesKeys.secret, ""},
		"another token":        {writesKeys.access, writesKeys.secret, ci.token},
		"a user with a token":  {started.RootUser, started.RootPassword, ci.token},
		"another's secret key": {ci.access, writesKeys.secret, ci.token},
	} {
		w := &byS3{r, r.s3(k)}
		if got := w.get("models", "a"); got != noKeys && !strings.Contains(got, "signature") {
			t.Errorf("%s: %s", what, got)
		}
	}

	// The sessions survive a restart, and end when their time is over.
	r.s.Stop()
	r.s = started.RunWith(t, r.options)
	reads, limited = r.ways(ci), r.ways(writesKeys)
	r.expect("after a restart", reads, "a", fine, denied)
	r.expect("after a restart", limited, "a", fine, fine)
	r.clock.pass(time.Hour)
	r.expect("expired", reads, "a", noKeys, noKeys)
	r.expect("expired, with new connections", r.ways(writesKeys), "a", noKeys, noKeys)
}

// TestAnIssuerRotatesItsKeys: tokens of new keys are accepted at once, those of withdrawn keys are refused.
func TestAnIssuerRotatesItsKeys(t *testing.T) {
	r := newRig(t)
	prepare(t, r)
	company := r.issuers[0]
	old := company.token(issuer.Token{Subject: "a", Claims: claims("readonly")})
	k, code := r.exchange(old, "")
	if code != "" {
		t.Fatal(code)
	}
	before := r.ways(k)
	for _, algorithm := range []string{"ES256", "EdDSA", "RS256"} {
		company.rotate(algorithm, false)
		now := company.token(issuer.Token{Subject: "a", Claims: claims("readonly")})
		k, code := r.exchange(now, "")
		if code != "" {
			t.Fatalf("a token by a new %s key: %s", algorithm, code)
		}
		r.expect("a new key", r.ways(k), "a", fine, denied)
		if _, code := r.exchange(old, ""); code != "" {
			t.Errorf("a token by an old key that is still published: %s", code)
		}
	}
	company.rotate("ES256", true)
	r.clock.pass(15 * time.Second) // the server fetches the keys of an issuer not too often
	if _, code := r.exchange(company.token(issuer.Token{Subject: "a", Claims: claims("readonly")}), ""); code != "" {
		t.Errorf("a token by the only key: %s", code)
	}
	if _, code := r.exchange(old, ""); code != "InvalidIdentityToken" {
		t.Errorf("a token by a withdrawn key: %q", code)
	}
	r.expect("keys that a withdrawn key gave", before, "a", fine, denied) // they last until they expire
}

// TestSessionsOfUsers: AssumeRole gives keys with the rights of the user, and a session policy narrows them.
func TestSessionsOfUsers(t *testing.T) {
	r := newRig(t)
	prepare(t, r)
	r.s.AddUser("alice", iam.RoleUserPlus)
	admin, err := node.Administer(t.Context(), r.s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Grant(t.Context(), iam.Grant{Bucket: "models", User: "alice",
		Access: iam.AccessReadWrite}); err != nil {
		t.Fatal(err)
	}
	alice := keys{"alice", "alice-secret", ""}
	whole, err := r.assume(alice, "")
	if err != nil {
		t.Fatal(err)
	}
	limited, err := r.assume(alice, onTeam)
	if err != nil {
		t.Fatal(err)
	}
	ways, narrow := r.ways(whole), r.ways(limited)
	r.expect("the rights of alice", ways, "a", fine, fine)
	r.expect("narrower", narrow, "team/a", fine, denied)
	r.expect("narrower", narrow, "a", denied, denied)

	// What a session makes belongs to its user.
	if err := r.s3(whole).MakeBucket(t.Context(), "alices", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := (&byS3{r, r.s3(alice)}).put("alices", "a"); got != fine {
		t.Errorf("alice in the bucket of her session: %s", got)
	}
	if err := r.s3(limited).MakeBucket(t.Context(), "others", minio.MakeBucketOptions{}); err == nil {
		t.Error("a session made a bucket against its policy")
	}

	// A session policy holds for administrators, too, and closes their pages of the console.
	rootWhole, err := r.assume(rootKeys, "")
	if err != nil {
		t.Fatal(err)
	}
	rootLimited, err := r.assume(rootKeys, onTeam)
	if err != nil {
		t.Fatal(err)
	}
	r.expect("root", r.ways(rootWhole), "a", fine, fine)
	r.expect("root, narrower", r.ways(rootLimited), "team/a", fine, denied)
	r.expect("root, narrower", r.ways(rootLimited), "a", denied, denied)
	for k, want := range map[keys]int{rootWhole: http.StatusOK, rootLimited: http.StatusForbidden,
		whole: http.StatusForbidden} {
		if got := newPage(r, k).b.JSON(http.MethodGet, "users", nil); got.Status != want {
			t.Errorf("the page of users: %d, expected %d", got.Status, want)
		}
	}

	// Sessions begin no sessions. Wrong keys begin none either.
	for what, k := range map[string]keys{"a session": whole, "a wrong secret": {"alice", "wrong-secret", ""},
		"nobody": {"nobody", "nobody-secret", ""}} {
		if got, err := r.assume(k, ""); err == nil {
			t.Errorf("%s began the session %s", what, got.access)
		}
	}

	presigned(t, r, whole)

	// A new secret and the removal of the user end the sessions.
	secret := "another-secret"
	if err := admin.UpdateUser(t.Context(), "alice", iam.Change{Secret: &secret}); err != nil {
		t.Fatal(err)
	}
	r.expect("after a new secret", ways, "a", noKeys, noKeys)
	if whole, err = r.assume(keys{"alice", secret, ""}, ""); err != nil {
		t.Fatal(err)
	}
	ways = r.ways(whole)
	r.expect("with the new secret", ways, "a", fine, fine)
	if err := admin.RemoveUser(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	r.expect("after the removal", ways, "a", noKeys, noKeys)
}

// presigned checks URLs that keys of a session have signed.
func presigned(t *testing.T, r *rig, k keys) {
	t.Helper()
	u, err := r.s3(k).PresignedGetObject(t.Context(), "models", "a", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	status := func(u *url.URL) int {
		resp, err := http.Get(u.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if !u.Query().Has("X-Amz-Security-Token") || status(u) != http.StatusOK {
		t.Errorf("%s: %d", u, status(u))
	}
	q := u.Query()
	q.Del("X-Amz-Security-Token")
	without := *u
	without.RawQuery = q.Encode()
	if got := status(&without); got != http.StatusForbidden {
		t.Errorf("without its token: %d", got)
	}
	q.Set("X-Amz-Security-Token", "another")
	without.RawQuery = q.Encode()
	if got := status(&without); got != http.StatusBadRequest {
		t.Errorf("with another token: %d", got)
	}
}

// TestGroupsAndClaimsOfTokens: a token has the policies of the groups that it names, and policies compare its claims. A
// change of a policy counts at once, also for keys that were given before.
func TestGroupsAndClaimsOfTokens(t *testing.T) {
	r := newRig(t)
	prepare(t, r)
	admin, err := node.Administer(t.Context(), r.s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	own := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"],` +
		`"Resource":"arn:aws:s3:::models/${jwt:team}/*"}]}`
	if _, err := admin.PutPolicy(t.Context(), "own-team", own); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AddMembers(t.Context(), "research", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Attach(t.Context(), iam.Holder{Group: "research"}, []string{"own-team"}); err != nil {
		t.Fatal(err)
	}
	k, code := r.exchange(r.issuers[0].token(issuer.Token{Subject: "a", Claims: map[string]any{
		"groups": []string{"research", "unknown"}, "team": "team"}}), "")
	if code != "" {
		t.Fatal(code)
	}
	ways := r.ways(k)
	r.expect("a group of the token", ways, "team/a", fine, fine)
	r.expect("outside of the claim", ways, "a", denied, denied)
	if _, err := admin.Attach(t.Context(), iam.Holder{Group: "research"}, []string{"readonly"}); err != nil {
		t.Fatal(err)
	}
	r.expect("after another policy", ways, "a", fine, denied)
	if err := admin.RemoveGroup(t.Context(), "research"); err != nil {
		t.Fatal(err)
	}
	r.expect("without the group", ways, "team/a", denied, denied)
}
