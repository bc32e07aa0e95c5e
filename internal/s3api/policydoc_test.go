// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// TestPoliciesWithPartsThatAreNotUnderstood puts policies that older releases accepted and did not follow.
func TestPoliciesWithPartsThatAreNotUnderstood(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	const open = `{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`
	for name, x := range map[string]struct{ policy, names string }{
		"an Allow for others": {
			policyOf(
				`{"Effect":"Allow","NotPrincipal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`),
			"NotPrincipal with the effect Allow"},
		"both principals":       {policyOf(`{"Effect":"Deny","Principal":"*","NotPrincipal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "both Principal and NotPrincipal"},
		"both actions":          {policyOf(`{"Effect":"Deny","Principal":"*","NotAction":"s3:PutObject","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "both Action and NotAction"},
		"both resources":        {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","NotResource":"arn:aws:s3:::corp/a"}`), "both Resource and NotResource"},
		"NotResource elsewhere": {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","NotResource":["arn:aws:s3:::corp/a","arn:aws:s3:::other/*"]}`), "another bucket"},
		"NotResource of all": {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","NotResource":"*"}`),
			"NotResource"},
		"NotResource, variable": {
			policyOf(
				`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","NotResource":"arn:aws:s3:::corp/${aws:username}"}`),
			"variable"},
		"no NotResource": {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","NotResource":[]}`),
			"NotResource"},
		"NotAction of none": {
			policyOf(`{"Effect":"Deny","Principal":"*","NotAction":"s3:Nothing","Resource":"arn:aws:s3:::corp/*"}`),
			"s3:Nothing"},
		"NotAction elsewhere": {
			policyOf(`{"Effect":"Deny","Principal":"*","NotAction":["s3:GetObject","sqs:*"],"Resource":"arn:aws:s3:::corp/*"}`),
			"sqs:*"},
		"no NotAction": {
			policyOf(`{"Effect":"Deny","Principal":"*","NotAction":[],"Resource":"arn:aws:s3:::corp/*"}`), "invalid action"},
		"NotPrincipal of none": {
			policyOf(
				`{"Effect":"Deny","NotPrincipal":{"AWS":"mallory"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`),
			"rincipal"},
		"NotPrincipal, role":  {policyOf(`{"Effect":"Deny","NotPrincipal":{"AWS":"arn:aws:iam::123456789012:role/x"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "rincipal"},
		"no service":          {policyOf(`{"Effect":"Deny","Principal":{"Service":"logging.s3.amazonaws.comkaboom"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`), "kaboom"},
		"a service of nobody": {policyOf(`{"Effect":"Deny","Principal":{"Service":"loging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`), "loging"},
		"a service of all": {
			policyOf(`{"Effect":"Deny","Principal":{"Service":"*"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`),
			"service"},
		"services of none": {
			policyOf(`{"Effect":"Deny","Principal":{"Service":[]},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`),
			"list of strings"},
		"a service as a user": {policyOf(`{"Effect":"Deny","Principal":{"AWS":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`), "rincipal"},
		"no user beside one":  {policyOf(`{"Effect":"Deny","Principal":{"AWS":"mallory","Service":"s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`), "rincipal"},
		"no kind of principal": {
			policyOf(`{"Effect":"Deny","Principal":{},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`),
			"AWS or Service"},
		"an ARN of no source": {conditioned(`"ArnLike":{"aws:SourceArn":"corp"}`), "condition key"},
		"no Principal": {policyOf(`{"Effect":"Deny","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`),
			"Principal"},
		"no Action":   {policyOf(`{"Effect":"Deny","Principal":"*","Resource":"arn:aws:s3:::corp/*"}`), "Action"},
		"no Resource": {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject"}`), "Resource"},
		"no Effect": {policyOf(`{"Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`),
			"Effect"},
		"an unknown field": {
			policyOf(
				`{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","Conditions":{}}`),
			"Conditions"},
		"another case": {
			policyOf(`{"effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "effect"},
		"one field twice": {
			policyOf(
				`{"Effect":"Deny","Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`),
			"Effect"},
		"two statements":     {`{"Statement":[` + open + `],"Statement":[` + open + `]}`, "Statement"},
		"at the top":         {`{"Statement":[` + open + `],"Deny":true}`, "Deny"},
		"other principals":   {policyOf(`{"Effect":"Deny","Principal":{"AWS":"bob","CanonicalUser":"x"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "CanonicalUser"},
		"a condition":        {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","Condition":{"StringEquals":{"aws:Nothing":"bob"}}}`), "condition key"},
		"a condition twice":  {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","Condition":{"Bool":{"aws:SecureTransport":"false"},"Bool":{"aws:SecureTransport":"true"}}}`), "Bool"},
		"a key in two cases": {policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","Condition":{"StringLike":{"aws:UserAgent":"a","aws:useragent":"b"}}}`), "useragent"},
		"a variable": {
			policyOf(
				`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/${aws:username}/*"}`),
			"variable"},
		"another bucket": {
			policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corporate/*"}`),
			"corporate"},
		"a role":         {policyOf(`{"Effect":"Deny","Principal":{"AWS":"arn:aws:iam::123456789012:role/x"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), "rincipal"},
		"too large":      {policyOf(strings.TrimSuffix(strings.Repeat(open+",", 200), ",")), "20480"},
		"no date":        {conditioned(`"DateLessThanIfExists":{"aws:EpochTime":"soon"}`), "soon"},
		"no number":      {conditioned(`"NumericGreaterThan":{"s3:max-keys":"ten"}`), "ten"},
		"not a number":   {conditioned(`"NumericGreaterThan":{"s3:max-keys":"NaN"}`), "NaN"},
		"no truth":       {conditioned(`"Bool":{"aws:SecureTransport":"flase"}`), "flase"},
		"no presence":    {conditioned(`"Null":{"aws:Referer":"yes"}`), "yes"},
		"no values":      {conditioned(`"StringNotEquals":{"aws:Referer":[]}`), "aws:Referer"},
		"no keys":        {conditioned(`"StringEquals":{}`), "StringEquals"},
		"a date of text": {conditioned(`"DateLessThan":{"aws:UserAgent":"2030-01-01T00:00:00Z"}`), "aws:UserAgent"},
		"an ARN of text": {conditioned(`"ArnLike":{"aws:Referer":"*"}`), "ArnLike"},
		"no Unicode": {
			policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/\ud800*"}`),
			"Unicode"},
		"no UTF-8": {
			policyOf(`{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/` + "\xff" + `"}`),
			"Unicode"},
		"something behind": {policyOf(open) + policyOf(open), ""},
	} {
		r := w.as("alice", 400, "PUT", "/corp?policy", x.policy)
		if r.code() != "MalformedPolicy" || !strings.Contains(string(r.body), x.names) {
			t.Errorf("%s: %s", name, r.body)
		}
	}
	w.as("alice", 404, "GET", "/corp?policy", "")
	// What AWS has beside that is accepted.
	for _, condition := range []string{
		`"DateGreaterThan":{"aws:CurrentTime":["2030-01-01T00:00:00Z","2030-01-01T00:00:00.5+02:00"]}`,
		`"NumericLessThan":{"aws:EpochTime":1900000000}`,
		`"Bool":{"aws:SecureTransport":false}`, `"ForAnyValue:StringLikeIfExists":{"AWS:Referer":"https://*.example.com/*"}`,
		`"NotIpAddress":{"aws:SourceIp":["10.0.0.0/8","::1"]}`, `"Null":{"aws:UserAgent":"TRUE"}`, ``,
	} {
		w.as("alice", 204, "PUT", "/corp?policy", conditioned(condition))
	}
	for _, s := range []string{
		`{"Effect":"Deny","NotPrincipal":{"AWS":["alice","arn:aws:iam::123456789012:user/bob"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Deny","NotPrincipal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Deny","NotPrincipal":{"Service":"s3.amazonaws.com"},"NotAction":["s3:List*","s3:getobject"],"NotResource":"arn:aws:s3:::corp"}`,
		`{"Effect":"Allow","Principal":"*","NotAction":"s3:*","Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Allow","Principal":{"AWS":"bob"},"Action":"s3:GetObject","NotResource":"arn:aws:s3:::corp"}`,
		`{"Effect":"Allow","Principal":{"Service":["logging.s3.amazonaws.com","logs.eu-west-1.amazonaws.com"]},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Allow","Principal":{"AWS":"bob","Service":"cloudtrail.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Allow","Principal":{"Service":"s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*","Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::*"},"StringEquals":{"aws:SourceAccount":"alice"}}}`,
	} {
		w.as("alice", 204, "PUT", "/corp?policy", policyOf(s))
		if r := w.as("alice", 200, "GET", "/corp?policy", ""); string(r.body) != policyOf(s) {
			t.Errorf("shown as %s, put as %s", r.body, policyOf(s))
		}
	}
	w.as("alice", 204, "PUT", "/corp?policy", `{"Id":"x","Version":"2012-10-17","Statement":[{"Sid":"y",`+open[1:]+`]}`)
	if r, err := w.try("bob", "bob-secret", "PUT", "/corp?policy",
		[]byte(policyOf(open, `{"NotPrincipal":"bob"}`))); err != nil || r.StatusCode != 400 {
		t.Errorf("%v %+v", err, r)
	}
}

// conditioned is a policy with a condition.
func conditioned(condition string) string {
	action := "s3:GetObject"
	if strings.Contains(condition, "max-keys") {
		action = "s3:List*"
	}
	return policyOf(fmt.Sprintf(`{"Effect":"Deny","Principal":"*","Action":%q,"Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"],"Condition":{%s}}`, action, condition))
}

// TestPrincipalsAsAWSWritesThem names accounts by ARNs.
func TestPrincipalsAsAWSWritesThem(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	const user = "arn:aws:iam::123456789012:user/"
	says := func(effect, principal string) string {
		return fmt.Sprintf(`{"Effect":%q,"Principal":%s,"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`, effect,
			principal)
	}
	for _, x := range []struct {
		policy                    string
		bob, carol, alice, nobody int
	}{
		{policyOf(says("Allow", `{"AWS":"`+user+`bob"}`)), 200, 403, 200, 403},
		{policyOf(says("Allow", `{"AWS":["`+user+`bob","`+user+`team/a/carol"]}`)), 200, 200, 200, 403},
		{policyOf(says("Allow", `{"AWS":["arn:aws-cn:iam::123456789012:user/bob","carol"]}`)), 200, 200, 200, 403},
		{policyOf(says("Allow", `"*"`), says("Deny", `{"AWS":"`+user+`bob"}`)), 403, 200, 200, 200},
		{policyOf(says("Allow", `{"AWS":"arn:aws:iam::123456789012:root"}`)), 403, 403, 200, 403},
		{policyOf(says("Allow", `{"AWS":["arn:aws:iam::123456789012:root","bob"]}`)), 200, 403, 200, 403},
		{policyOf(says("Allow", `"*"`), says("Deny", `{"AWS":["arn:aws:iam::123456789012:root"]}`)), 403, 403, 403, 403},
	} {
		w.as("alice", 204, "PUT", "/corp?policy", x.policy)
		w.as("bob", x.bob, "GET", "/corp/key", "")
		w.as("carol", x.carol, "GET", "/corp/key", "")
		w.as("alice", x.alice, "GET", "/corp/key", "")
		if r, err := w.try("", "", "GET", "/corp/key", nil); err != nil || r.StatusCode != x.nobody {
			t.Errorf("%s: nobody gets %d, expected %d", x.policy, r.StatusCode, x.nobody)
		}
		err := w.server.Authorizer().Authorize(t.Context(),
			object.Access{Account: "bob", Action: object.ActionGet, Bucket: "corp", Key: "key"})
		if (err == nil) != (x.bob == 200) {
			t.Errorf("%s: another door says %v of bob", x.policy, err)
		}
		if r := w.must(200, "GET", "/corp?policy", nil); string(r.body) != x.policy {
			t.Errorf("shown as %s, put as %s", r.body, x.policy)
		}
	}
	for _, who := range []string{user + "mallory", user + "*", user, "arn:aws:iam::12345:user/bob", "arn:aws:s3:::bob",
		"arn:aws:sts::123456789012:assumed-role/x/bob", "arn:aws:iam::123456789012:user", "arn:"} {
		if r := w.as("alice", 400, "PUT", "/corp?policy",
			policyOf(says("Allow", fmt.Sprintf(`{"AWS":%q}`, who)))); r.code() != "MalformedPolicy" {
			t.Errorf("%s: %s", who, r.body)
		}
	}
}

// TestStoredPoliciesFailSafe opens buckets with policies that an older release has accepted.
func TestStoredPoliciesFailSafe(t *testing.T) {
	const open = `{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`
	for name, x := range map[string]struct {
		policy      string
		bob, nobody int
		silent      bool
	}{
		"understood": {policyOf(open), 200, 200, true},
		"a Deny that is not": {policyOf(open,
			`{"Effect":"Deny","NotPrincipal":{"CanonicalUser":["alice"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`),
			403, 403, false},
		"a Deny that is now": {policyOf(open,
			`{"Effect":"Deny","NotPrincipal":{"AWS":["bob"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/none"}`), 200, 200,
			true},
		"an Allow for others": {
			policyOf(`{"Effect":"Allow","NotPrincipal":{"AWS":["alice"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`),
			200, 200, false},
		"an Allow that is not": {policyOf(`{"Effect":"Allow","Principal":"*","NotAction":"s3:PutObject","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*"}`), 200, 200, false},
		"an effect that is not": {policyOf(open,
			`{"Effect":"Maybe","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`), 403, 403, false},
		"fields at the top": {`{"Deny":"all","Statement":[` + open + `]}`, 403, 403, false},
		"no policy at all":  {`[]`, 403, 403, false},
		"an action nobody knows": {
			policyOf(`{"Effect":"Allow","Principal":"*","Action":"s3:Nothing","Resource":"arn:aws:s3:::corp/*"}`), 403, 403,
			false},
		"conditions nobody knows": {policyOf(open, `{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*","Condition":{"StringEquals":{"aws:Nothing":"bob"}}}`), 403, 403, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil, nil)
			w.people("alice", "bob")
			// A public ACL counts where a policy says nothing of everybody, and only there.
			w.as("alice", 200, "PUT", "/corp", "", "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-acl", "public-read")
			w.as("alice", 200, "PUT", "/corp/key", "x", "x-amz-acl", "public-read")
			if err := w.store.UpdateBucket(t.Context(), "corp", func(b *object.Bucket) error {
				b.Settings[policy.Setting] = []byte(x.policy)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			w.server.backend.tellFaults(t.Context())
			if told := strings.Contains(w.log.String(), "is not understood"); told == x.silent {
				t.Errorf("the log: %s", w.log.String())
			}
			w.as("bob", x.bob, "GET", "/corp/key", "")
			if r, err := w.try("", "", "GET", "/corp/key", nil); err != nil || r.StatusCode != x.nobody {
				t.Errorf("nobody gets %d, expected %d: %s", r.StatusCode, x.nobody, r.body)
			}
			if err := w.server.Authorizer().Authorize(t.Context(),
				object.Access{Account: "bob", Action: object.ActionGet, Bucket: "corp",
					Key: "key"}); (err == nil) != (x.bob == 200) {
				t.Errorf("another door says %v", err)
			}
			// The owner can mend it.
			w.as("alice", 200, "GET", "/corp/key", "")
			w.as("alice", 204, "PUT", "/corp?policy", policyOf(open))
			w.as("bob", 200, "GET", "/corp/key", "")
		})
	}
}

// TestAPolicyIsShownToWhoAsksForIt: asked for beside another sub-resource, it is not.
func TestAPolicyIsShownToWhoAsksForIt(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x", "x-amz-tagging", "a=b")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:GetObjectTagging", "corp/*"),
		statement("Allow", "bob", "s3:ListBucket", "corp"),
		statement("Allow", "bob", "s3:GetBucketAcl", "corp"), statement("Allow", "bob", "s3:GetBucketTagging", "corp")))
	for _, path := range []string{"/corp/key?tagging&policy", "/corp/key?policy&tagging", "/corp?policy&acl",
		"/corp?acl&policy", "/corp?policy&tagging", "/corp?policy&list-type=2", "/corp?policy"} {
		r, err := w.try("bob", "bob-secret", "GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(r.body), "Statement") {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
}
