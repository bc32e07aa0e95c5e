// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"
)

// policyOf parses a policy of one statement that allows all actions on everything under the given condition.
func policyOf(t *testing.T, condition string) *Policy {
	t.Helper()
	p,
		err := Parse([]byte(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*","Condition":` +
		condition + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConditions compares values as AWS documents it for each operator.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		condition string
		given     map[string][]string
		want      bool
	}{
		{`{"StringEquals":{"aws:UserAgent":"a"}}`, map[string][]string{"aws:useragent": {"a"}}, true},
		{`{"StringEquals":{"aws:UserAgent":["a","b"]}}`, map[string][]string{"aws:useragent": {"b"}}, true},
		{`{"StringEquals":{"aws:UserAgent":"a"}}`, map[string][]string{"aws:useragent": {"A"}}, false},
		{`{"StringEquals":{"aws:UserAgent":"a"}}`, nil, false},
		{`{"StringEquals":{"aws:UserAgent":"a*"}}`, map[string][]string{"aws:useragent": {"ab"}}, false},
		{`{"StringEqualsIfExists":{"aws:UserAgent":"a"}}`, nil, true},
		{`{"StringEqualsIfExists":{"aws:UserAgent":"a"}}`, map[string][]string{"aws:useragent": {"b"}}, false},
		{`{"StringNotEquals":{"aws:UserAgent":"a"}}`, nil, true},
		{`{"StringNotEquals":{"aws:UserAgent":["a","b"]}}`, map[string][]string{"aws:useragent": {"b"}}, false},
		{`{"StringNotEquals":{"aws:UserAgent":["a","b"]}}`, map[string][]string{"aws:useragent": {"c"}}, true},
		{`{"StringEqualsIgnoreCase":{"aws:UserAgent":"aB"}}`, map[string][]string{"aws:useragent": {"Ab"}}, true},
		{`{"StringNotEqualsIgnoreCase":{"aws:UserAgent":"aB"}}`, map[string][]string{"aws:useragent": {"Ab"}}, false},
		{`{"StringLike":{"s3:prefix":["home/","home/?b*"]}}`, map[string][]string{"s3:prefix": {"home/abc"}}, true},
		{`{"StringLike":{"s3:prefix":"home/?b*"}}`, map[string][]string{"s3:prefix": {"home/b"}}, false},
		{`{"StringNotLike":{"s3:prefix":"home/*"}}`, map[string][]string{"s3:prefix": {"home/x"}}, false},
		{`{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}`,
			map[string][]string{"s3:prefix": {"home/alice/x"}, "aws:username": {"alice"}}, true},
		{`{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}`,
			map[string][]string{"s3:prefix": {"home/bob/x"}, "aws:username": {"*"}}, false},
		{`{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}`, map[string][]string{"s3:prefix": {"home/bob/x"}}, false},
		{`{"StringLike":{"s3:prefix":"home/${aws:username, 'bob'}/*"}}`, map[string][]string{"s3:prefix": {"home/bob/x"}},
			true},
		{`{"StringLike":{"s3:prefix":"a${*}"}}`, map[string][]string{"s3:prefix": {"a*"}}, true},
		{`{"StringLike":{"s3:prefix":"a${*}"}}`, map[string][]string{"s3:prefix": {"ab"}}, false},
		{`{"NumericLessThanEquals":{"s3:max-keys":"10"}}`, map[string][]string{"s3:max-keys": {"10"}}, true},
		{`{"NumericLessThanEquals":{"s3:max-keys":10}}`, map[string][]string{"s3:max-keys": {"11"}}, false},
		{`{"NumericLessThan":{"s3:max-keys":"10"}}`, map[string][]string{"s3:max-keys": {"x"}}, false},
		{`{"NumericNotEquals":{"s3:max-keys":"10"}}`, map[string][]string{"s3:max-keys": {"10.0"}}, false},
		{`{"NumericGreaterThan":{"s3:max-keys":"9"}}`, map[string][]string{"s3:max-keys": {"10"}}, true},
		{`{"NumericGreaterThanEquals":{"s3:max-keys":"9"}}`, map[string][]string{"s3:max-keys": {"9"}}, true},
		{`{"NumericEquals":{"s3:max-keys":"9"}}`, map[string][]string{"s3:max-keys": {"9"}}, true},
		{`{"DateLessThan":{"aws:CurrentTime":"2030-01-01T00:00:00Z"}}`,
			map[string][]string{"aws:currenttime": {"2029-12-31T23:59:59Z"}}, true},
		{`{"DateGreaterThan":{"aws:CurrentTime":"2030-01-01"}}`,
			map[string][]string{"aws:currenttime": {"2029-12-31T23:59:59Z"}}, false},
		{`{"DateGreaterThanEquals":{"aws:EpochTime":"1577836800"}}`,
			map[string][]string{"aws:epochtime": {"1577836800"}}, true},
		{`{"DateEquals":{"aws:CurrentTime":"2030-01-01T01:00:00+01:00"}}`,
			map[string][]string{"aws:currenttime": {"2030-01-01T00:00:00Z"}}, true},
		{`{"DateNotEquals":{"aws:CurrentTime":"2030-01-01"}}`, nil, true},
		{`{"DateLessThanEquals":{"aws:CurrentTime":"2030-01-01"}}`, nil, false},
		{`{"Bool":{"aws:SecureTransport":"true"}}`, map[string][]string{"aws:securetransport": {"true"}}, true},
		{`{"Bool":{"aws:SecureTransport":true}}`, map[string][]string{"aws:securetransport": {"false"}}, false},
		{`{"Bool":{"aws:SecureTransport":"false"}}`, nil, false},
		{`{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, map[string][]string{"aws:sourceip": {"10.1.2.3"}}, true},
		{`{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","192.0.2.1"]}}`, map[string][]string{"aws:sourceip": {"192.0.2.1"}},
			true},
		{`{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, map[string][]string{"aws:sourceip": {"::ffff:10.1.2.3"}}, true},
		{`{"IpAddress":{"aws:SourceIp":"2001:db8::/32"}}`, map[string][]string{"aws:sourceip": {"2001:db8:1::1"}}, true},
		{`{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, map[string][]string{"aws:sourceip": {"11.1.2.3"}}, true},
		{`{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, map[string][]string{"aws:sourceip": {"10.1.2.3"}}, false},
		{`{"ArnLike":{"s3:x-amz-copy-source":"arn:aws:s3:::*"}}`,
			map[string][]string{"s3:x-amz-copy-source": {"arn:aws:s3:::a/b"}}, true},
		{`{"ArnEquals":{"s3:x-amz-copy-source":"arn:aws:*:::a"}}`,
			map[string][]string{"s3:x-amz-copy-source": {"arn:aws:s3:x::a"}}, false},
		{`{"ArnNotLike":{"s3:x-amz-copy-source":"arn:aws:s3:::a"}}`, nil, true},
		{`{"BinaryEquals":{"aws:Referer":"aGk="}}`, map[string][]string{"aws:referer": {"aGk="}}, true},
		{`{"Null":{"aws:Referer":"true"}}`, nil, true},
		{`{"Null":{"aws:Referer":"true"}}`, map[string][]string{"aws:referer": {"x"}}, false},
		{`{"Null":{"aws:Referer":false}}`, map[string][]string{"aws:referer": {"x"}}, true},
		{`{"Null":{"aws:Referer":"false"}}`, nil, false},
		{`{"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}`,
			map[string][]string{"s3:requestobjecttagkeys": {"a", "b"}}, true},
		{`{"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}`,
			map[string][]string{"s3:requestobjecttagkeys": {"a", "c"}}, false},
		{`{"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}`, nil, true},
		{`{"ForAnyValue:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}`,
			map[string][]string{"s3:requestobjecttagkeys": {"a", "c"}}, true},
		{`{"ForAnyValue:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}`, nil, false},
		{`{"ForAnyValue:StringNotEquals":{"s3:RequestObjectTagKeys":["a"]}}`,
			map[string][]string{"s3:requestobjecttagkeys": {"a", "c"}}, true},
		{`{"ForAllValues:StringNotEquals":{"s3:RequestObjectTagKeys":["a"]}}`,
			map[string][]string{"s3:requestobjecttagkeys": {"a", "c"}}, false},
		{`{"StringEquals":{"s3:RequestObjectTag/Team":"red"}}`, map[string][]string{"s3:requestobjecttag/team": {"red"}},
			true},
		{`{"StringEquals":{"aws:UserAgent":"a","aws:Referer":"b"}}`, map[string][]string{"aws:useragent": {"a"}}, false},
		{`{"StringEquals":{"aws:UserAgent":"a"},"Null":{"aws:Referer":"true"}}`, map[string][]string{"aws:useragent": {"a"}},
			true},
		{`{"StringEquals":{"jwt:sub":"x"}}`, map[string][]string{"jwt:sub": {"x"}}, true},
	} {
		r := Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k",
			Value: func(name string) []string { return c.given[name] }}
		if got := policyOf(t, c.condition).Decide(&r) == Allow; got != c.want {
			t.Errorf("%s with %v: %v, expected %v", c.condition, c.given, got, c.want)
		}
	}
}

// TestStatements decides by actions and resources.
func TestStatements(t *testing.T) {
	const head = `{"Version":"2012-10-17","Statement":[`
	for _, c := range []struct {
		policy, action, resource string
		want                     Decision
	}{
		{`{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "b/k", Allow},
		{`{"Effect":"Allow","Action":"S3:getobject","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "b/k", Allow},
		{`{"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObjectVersion", "b/k", Allow},
		{`{"Effect":"Allow","Action":"s3:Get?bject","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "b/k", Allow},
		{`{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`, "s3:PutObject", "b/k", None},
		{`{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "c/k", None},
		{`{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "B/k", None},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b"}`, "s3:ListBucket", "b", Allow},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b*"}`, "s3:GetObject", "bc/d", Allow},
		{`{"Effect":"Allow","NotAction":"s3:Delete*","Resource":"*"}`, "s3:GetObject", "b/k", Allow},
		{`{"Effect":"Allow","NotAction":"s3:Delete*","Resource":"*"}`, "s3:DeleteObject", "b/k", None},
		{`{"Effect":"Allow","Action":"s3:*","NotResource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "b/k", None},
		{`{"Effect":"Allow","Action":"s3:*","NotResource":"arn:aws:s3:::b/*"}`, "s3:GetObject", "c/k", Allow},
		{`{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"s3:PutObject","Resource":"*"}`,
			"s3:PutObject", "b/k", Deny},
		{`{"Effect":"Deny","Action":"s3:PutObject","Resource":"*"},{"Effect":"Allow","Action":"*","Resource":"*"}`,
			"s3:PutObject", "b/k", Deny},
		{`{"Effect":"Deny","NotAction":"s3:Get*","Resource":"*"}`, "s3:PutObject", "b/k", Deny},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/${aws:username}/*"}`, "s3:GetObject", "b/alice/k",
			Allow},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/${aws:username}/*"}`, "s3:GetObject", "b/bob/k", None},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/${aws:Referer}/*"}`, "s3:GetObject", "b//k", None},
		{`{"Effect":"Allow","Action":"s3:*","NotResource":"arn:aws:s3:::b/${aws:Referer}/*"}`, "s3:GetObject", "b/k", None},
		{`{"Effect":"Deny","Action":"s3:*","NotResource":"arn:aws:s3:::b/${aws:Referer}/*"}`, "s3:GetObject", "b/k", Deny},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/a?c"}`, "s3:GetObject", "b/aéc", Allow},
		{`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/a*"}`, "s3:GetObject", "b/a*x", Allow},
		{`{"Effect":"Allow","Action":"admin:*"}`, "s3:GetObject", "b/k", None},
	} {
		p, err := Parse([]byte(head + c.policy + `]}`))
		if err != nil {
			t.Errorf("%s: %v", c.policy, err)
			continue
		}
		r := Request{Action: c.action, Resource: "arn:aws:s3:::" + c.resource, Value: func(name string) []string {
			if name == "aws:username" {
				return []string{"alice"}
			}
			return nil
		}}
		if got := p.Decide(&r); got != c.want {
			t.Errorf("%s: %s on %s: %v, expected %v", c.policy, c.action, c.resource, got, c.want)
		}
	}
}

// TestVariablesNeedTheNewVersion reads ${…} as a text in policies of the old version, as AWS does.
func TestVariablesNeedTheNewVersion(t *testing.T) {
	p, err := Parse([]byte(`{"Statement":{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/${aws:username}"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]Decision{"b/alice": None, "b/${aws:username}": Allow} {
		r := Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::" + resource,
			Value: func(string) []string { return []string{"alice"} }}
		if got := p.Decide(&r); got != want {
			t.Errorf("%s: %v, expected %v", resource, got, want)
		}
	}
}

// TestBadPoliciesAreNamed refuses each policy with its offending value.
func TestBadPoliciesAreNamed(t *testing.T) {
	statement := func(fields string) string {
		return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*",` + fields + `}]}`
	}
	for text, want := range map[string]string{
		``: "JSON object", `[]`: "JSON object", `{}`: "Statement", `{"Statement":[]}`: "Statement",
		`{"Version":"2013-01-01","Statement":[]}`:                                                         "2013-01-01",
		`{"Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}],"More":1}`:                      `"More"`,
		`{"Statement":[{"Effect":"allow","Action":"s3:*","Resource":"*"}]}`:                               `"allow"`,
		`{"Statement":[{"Action":"s3:*","Resource":"*"}]}`:                                                "Effect",
		`{"Statement":[{"Effect":"Allow","Resource":"*"}]}`:                                               "Action",
		`{"Statement":[{"Effect":"Allow","Action":"s3:*"}]}`:                                              "Resource",
		`{"Statement":[{"Effect":"Allow","Action":"GetObject","Resource":"*"}]}`:                          `"GetObject"`,
		`{"Statement":[{"Effect":"Allow","Action":"s3:Get Object","Resource":"*"}]}`:                      `"s3:Get Object"`,
		`{"Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"bucket/*"}]}`:                        `"bucket/*"`,
		`{"Statement":[{"Effect":"Allow","Action":"s3:*","NotAction":"s3:*","Resource":"*"}]}`:            "NotAction",
		`{"Statement":[{"Effect":"Allow","Action":["s3:*",null],"Resource":"*"}]}`:                        "list of strings",
		`{"Statement":[{"Effect":"Allow","Effect":"Deny","Action":"s3:*","Resource":"*"}]}`:               "twice",
		statement(`"Principal":"*"`):                                                                      "Principal",
		statement(`"Conditon":{}`):                                                                        `"Conditon"`,
		statement(`"Condition":{"StringEqual":{"aws:username":"a"}}`):                                     `"StringEqual"`,
		statement(`"Condition":{"StringEquals":{"aws:usernam":"a"}}`):                                     `"aws:usernam"`,
		statement(`"Condition":{"StringEquals":{}}`):                                                      "no condition key",
		statement(`"Condition":{"StringEquals":{"aws:username":[]}}`):                                     "empty",
		statement(`"Condition":{"StringEquals":{"aws:username":"a","AWS:USERNAME":"b"}}`):                 "twice",
		statement(`"Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}}`):                             `"10.0.0.0/33"`,
		statement(`"Condition":{"NumericEquals":{"s3:max-keys":"many"}}`):                                 `"many"`,
		statement(`"Condition":{"DateEquals":{"aws:CurrentTime":"today"}}`):                               `"today"`,
		statement(`"Condition":{"Bool":{"aws:SecureTransport":"yes"}}`):                                   `"yes"`,
		statement(`"Condition":{"StringEquals":{"aws:username":"${aws:nobody}"}}`):                        "aws:nobody",
		statement(`"Condition":{"StringEquals":{"aws:username":"${aws:username"}}`):                       "brace",
		statement(`"Condition":{"StringLike":{"aws:Referer":"*` + strings.Repeat("a", 3000) + `"}}`):      "behind a *",
		`{"Statement":[{"Effect":"Allow","Action":"*","Resource":"` + strings.Repeat("a", 21000) + `"}]}`: "at most 20480",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v, expected %s", text, err, want)
		}
	}
}

// TestUnknownActions names the actions of S3 that no request has.
func TestUnknownActions(t *testing.T) {
	p,
		err := Parse(
		[]byte(`{"Statement":{"Effect":"Allow","Action":["s3:GetObjet","s3:Get*","s3:getobject","sts:X"],"Resource":"*"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Unknown([]string{"s3:GetObject"}); len(got) != 1 || got[0] != "s3:GetObjet" {
		t.Errorf("%q", got)
	}
}

// FuzzParse lets no text crash the parser or the evaluation.
func FuzzParse(f *testing.F) {
	f.Add(
		`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/${aws:username}"}}`,
		"b/k", "alice")
	f.Add(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","NotAction":"*","NotResource":"*","Condition":`+
		`{"ForAnyValue:ArnLike":{"aws:referer":"arn:a:b:c:d:*"},"IpAddressIfExists":{"aws:sourceip":"::/0"}}}]}`, "b",
		"arn:a:b:c:d:e")
	f.Fuzz(func(t *testing.T, text, resource, value string) {
		p, err := Parse([]byte(text))
		if err != nil {
			return
		}
		r := Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::" + resource,
			Value: func(string) []string { return []string{value} }}
		if d := p.Decide(&r); p.Uniform() && d != p.Decide(&Request{Action: r.Action, Resource: "arn:aws:s3:::other/key"}) {
			t.Errorf("a uniform policy treats resources differently: %s", text)
		}
	})
}
