// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestServicesAreDecided asks policies about the delivery of an access log of the bucket pictures, which alice owns.
func TestServicesAreDecided(t *testing.T) {
	const allow, deny, none = document.Allow, document.Deny, document.None
	of := func(effect, principal, rest string) string {
		return fmt.Sprintf(`{"Effect":%q,%s,"Action":"s3:PutObject",%s}`, effect, principal, rest)
	}
	const (
		logging = `"Principal":{"Service":"logging.s3.amazonaws.com"}`
		keys    = `"Resource":"arn:aws:s3:::corp/*"`
	)
	when := func(condition string) string { return keys + `,"Condition":{` + condition + `}` }
	allowed := of("Allow", logging, keys)
	for name, x := range map[string]struct {
		policy string
		want   document.Decision
	}{
		"no statement": {policyOf(), none},
		"the service":  {policyOf(allowed), allow},
		"one of two services": {policyOf(of("Allow",
			`"Principal":{"Service":["s3.amazonaws.com","logging.s3.amazonaws.com"]}`, keys)), allow},
		"a user and the service": {policyOf(of("Allow", `"Principal":{"AWS":"bob","Service":"logging.s3.amazonaws.com"}`,
			keys)), allow},
		"another service":       {policyOf(of("Allow", `"Principal":{"Service":"s3.amazonaws.com"}`, keys)), none},
		"a user":                {policyOf(of("Allow", `"Principal":{"AWS":"bob"}`, keys)), none},
		"a whole account":       {policyOf(of("Allow", `"Principal":{"AWS":"arn:aws:iam::123456789012:root"}`, keys)), none},
		"everybody":             {policyOf(of("Allow", `"Principal":"*"`, keys)), allow},
		"another action":        {policyOf(strings.Replace(allowed, "s3:PutObject", "s3:GetObject", 1)), none},
		"all actions":           {policyOf(strings.Replace(allowed, "s3:PutObject", "s3:*", 1)), allow},
		"another key":           {policyOf(of("Allow", logging, `"Resource":"arn:aws:s3:::corp/other/*"`)), none},
		"the prefix alone":      {policyOf(of("Allow", logging, `"Resource":"arn:aws:s3:::corp/log/"`)), none},
		"the prefix":            {policyOf(of("Allow", logging, `"Resource":"arn:aws:s3:::corp/log/*"`)), allow},
		"NotResource elsewhere": {policyOf(of("Allow", logging, `"NotResource":"arn:aws:s3:::corp/other/*"`)), allow},
		"NotResource":           {policyOf(of("Allow", logging, `"NotResource":"arn:aws:s3:::corp/log/*"`)), none},
		"NotAction":             {policyOf(strings.Replace(allowed, `"Action"`, `"NotAction"`, 1)), none},
		"another NotAction": {policyOf(strings.Replace(allowed, `"Action":"s3:PutObject"`, `"NotAction":"s3:GetObject"`,
			1)), allow},

		"a denial":              {policyOf(allowed, of("Deny", logging, keys)), deny},
		"a denial alone":        {policyOf(of("Deny", logging, keys)), deny},
		"a denial of everybody": {policyOf(allowed, of("Deny", `"Principal":"*"`, keys)), deny},
		"a denial of a whole account": {policyOf(allowed,
			of("Deny", `"Principal":{"AWS":"arn:aws:iam::123456789012:root"}`, keys)), allow},
		"a denial of a user":      {policyOf(allowed, of("Deny", `"Principal":{"AWS":"alice"}`, keys)), allow},
		"a denial of another key": {policyOf(allowed, of("Deny", logging, `"Resource":"arn:aws:s3:::corp/x/*"`)), allow},
		"a denial of other keys": {policyOf(allowed, of("Deny", logging, `"NotResource":"arn:aws:s3:::corp/log/*"`)),
			allow},
		"a denial of all other keys": {policyOf(allowed, of("Deny", logging, `"NotResource":"arn:aws:s3:::corp/x/*"`)),
			deny},
		"NotPrincipal with it": {policyOf(allowed,
			of("Deny", `"NotPrincipal":{"Service":"logging.s3.amazonaws.com"}`, keys)), allow},
		"NotPrincipal without it": {policyOf(allowed, of("Deny", `"NotPrincipal":{"Service":"s3.amazonaws.com"}`, keys)),
			deny},
		"NotPrincipal of a user":    {policyOf(allowed, of("Deny", `"NotPrincipal":{"AWS":"alice"}`, keys)), deny},
		"NotPrincipal of everybody": {policyOf(allowed, of("Deny", `"NotPrincipal":"*"`, keys)), allow},
		"a restriction nobody knows": {policyOf(allowed,
			`{"Effect":"Deny","Principal":{"Federated":"x"},"Action":"s3:*",`+keys+`}`), deny},
		"a permission nobody knows": {policyOf(allowed,
			`{"Effect":"Allow","Principal":{"Federated":"x"},"Action":"s3:*",`+keys+`}`), allow},
		"no policy that can be parsed": {`[]`, deny},

		"ArnLike of the source": {policyOf(
			of("Allow", logging, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"}`))), allow},
		"ArnLike with a *": {policyOf(
			of("Allow", logging, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pic*"}`))), allow},
		"ArnLike of another source": {policyOf(
			of("Allow", logging, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::music"}`))), none},
		"ArnEquals": {policyOf(
			of("Allow", logging, when(`"ArnEquals":{"aws:SourceArn":"arn:aws:s3:::pictures"}`))), allow},
		"ArnNotLike": {policyOf(
			of("Allow", logging, when(`"ArnNotLike":{"aws:SourceArn":"arn:aws:s3:::pictures"}`))), none},
		"StringLike": {policyOf(of("Allow", logging, when(`"StringLike":{"aws:SourceArn":"*:pictures"}`))),
			allow},
		"StringEquals of two": {policyOf(
			of("Allow", logging, when(`"StringEquals":{"aws:SourceArn":["x","arn:aws:s3:::pictures"]}`))), allow},
		"the owner": {policyOf(of("Allow", logging, when(`"StringEquals":{"aws:SourceAccount":"alice"}`))),
			allow},
		"another owner": {policyOf(of("Allow", logging, when(`"StringEquals":{"aws:SourceAccount":"bob"}`))),
			none},
		"both": {policyOf(
			of("Allow", logging,
				when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"},"StringEquals":{"AWS:sourceaccount":"alice"}`))), allow},
		"both, one of them wrong": {policyOf(
			of("Allow", logging,
				when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"},"StringEquals":{"aws:SourceAccount":"bob"}`))), none},
		"a denial of other owners": {policyOf(allowed,
			of("Deny", logging, when(`"StringNotEquals":{"aws:SourceAccount":"bob"}`))), deny},
		"a denial of another source": {policyOf(allowed,
			of("Deny", logging, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::music"}`))), allow},
		"a denial <by> escaped values": {policyOf(allowed,
			of("Deny", logging, when(`"StringEquals": {"aws:SourceArn": "<&>"}`))), allow},
		"the address of a client": {policyOf(of("Allow", logging, when(`"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}`))),
			none},
	} {
		r := ReadRules(&object.Bucket{Name: "corp", Owner: "carol", Settings: map[string][]byte{Setting: []byte(x.policy),
			SettingBlock: []byte(`{"RestrictPublicBuckets":true}`)}}, "root")
		got := r.DecideService(LoggingService, auth.PutObjectAction, "log/2026-11-17", &document.Request{
			Value: func(name string) []string {
				return map[string][]string{"aws:sourcearn": {"arn:aws:s3:::pictures"}, "aws:sourceaccount": {"alice"}}[name]
			}})
		if got != x.want {
			t.Errorf("%s: %v, expected %v (fault %v)", name, got, x.want, r.Fault)
		}
	}
	if got := ReadRules(&object.Bucket{Name: "corp"}, "root").DecideService(LoggingService, auth.PutObjectAction, "k",
		&document.Request{}); got != none {
		t.Errorf("without a policy: %v", got)
	}
}

// TestEveryOtherActionIsCovered takes each known action, and patterns of actions, as NotAction.
func TestEveryOtherActionIsCovered(t *testing.T) {
	cases := [][]string{{"s3:Get*"}, {"s3:*Object"}, {"s3:?etObject*", "s3:List*"}, {"S3:GETOBJECT"}, {"s3:*"}, {"*"},
		{"s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"}}
	for _, a := range knownActions {
		cases = append(cases, []string{string(a)})
	}
	for _, names := range cases {
		raw := fmt.Sprintf("[%q", names[0])
		for _, n := range names[1:] {
			raw += fmt.Sprintf(",%q", n)
		}
		got, err := otherActions([]byte(raw + "]"))
		if err != nil {
			t.Fatal(err)
		}
		actions := auth.Actions{}
		if got != nil {
			if err := actions.UnmarshalJSON(got); err != nil {
				t.Fatalf("%v: versitygw refuses %s: %v", names, got, err)
			}
		}
		if len(got) > 2<<10 {
			t.Errorf("%v: the patterns have %d bytes", names, len(got))
		}
		for _, a := range knownActions {
			named := slices.ContainsFunc(names, func(n string) bool {
				like := actionsLike(n)
				return slices.Contains(like, a) || slices.Contains(like, auth.AllActions)
			})
			if actions.FindMatch(a) == named {
				t.Errorf("NotAction %v: covers %s: %v", names, a, !named)
			}
		}
	}
}

// TestEveryActionOfVersitygwIsKnown finds the actions that versitygw knows by patterns, letter by letter. A NotAction
// that denies covers only known actions.
func TestEveryActionOfVersitygwIsKnown(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	var find func(start string) int
	find = func(start string) int {
		n := 0
		if auth.Action(start).IsValid() == nil {
			n++
			if !slices.Contains(knownActions, auth.Action(start)) {
				t.Errorf("%s is not known", start)
			}
		}
		for _, c := range letters {
			if next := start + string(c); auth.Action(next+"*").IsValid() == nil {
				n += find(next)
			}
		}
		return n
	}
	if n := find("s3:"); n != len(knownActions) {
		t.Errorf("versitygw has %d actions, expected %d", n, len(knownActions))
	}
}

// TestServiceNames reads names of services.
func TestServiceNames(t *testing.T) {
	for name, want := range map[string]bool{
		"logging.s3.amazonaws.com": true, "s3.amazonaws.com": true, "logs.eu-west-1.amazonaws.com": true,
		"logs.us-gov-east-1.amazonaws.com": true, "cloudtrail.amazonaws.com": true, "delivery.logs.amazonaws.com": true,
		"logging.s3.eu-central-1.amazonaws.com": true,
		"logging.s3.amazonaws.comkaboom":        false, "logging.s3.amazonaws": false, "amazonaws.com": false, "*": false,
		"":               false,
		".amazonaws.com": false, "Logging.s3.amazonaws.com": false, "logging..s3.amazonaws.com": false,
		"x.amazonaws.com":                  false,
		"logging.s3.nowhere.amazonaws.com": false, "logging.s3.amazonaws.com.example.com": false, "*.amazonaws.com": false,
	} {
		got, err := servicesOf(fmt.Appendf(nil, "%q", name))
		if (err == nil) != want || want && !slices.Equal(got, []string{name}) {
			t.Errorf("%q: %v, %v, expected it to be accepted: %v", name, got, err, want)
		}
	}
}
