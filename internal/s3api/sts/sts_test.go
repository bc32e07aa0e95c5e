// SPDX-License-Identifier: Apache-2.0

package sts

import (
	"encoding/xml"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRequestsAreRead(t *testing.T) {
	for text, want := range map[string]Request{
		"Action=GetCallerIdentity&Version=2011-06-15": {Action: GetCallerIdentity},
		"Action=AssumeRole":                           {Action: AssumeRole},
		"Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa%2Fb&RoleSessionName=me%40x" +
			"&DurationSeconds=900&Policy=%7B%7D&ExternalId=7&PolicyArns.member.1.arn=arn:aws:iam::aws:policy/p1" +
			"&PolicyArns.member.2.arn=arn:aws:iam::1:policy/path/p2": {Action: AssumeRole, Role: "b", SessionName: "me@x",
			Duration: 15 * time.Minute, Policy: "{}", PolicyNames: []string{"p1", "p2"}},
		"Action=AssumeRoleWithWebIdentity&WebIdentityToken=a.b.c&RoleArn=arn:xxx:xxx:xxx:xxxx:x": {
			Action: AssumeRoleWithWebIdentity, Token: "a.b.c", Role: "x"},
	} {
		got, err := Parse([]byte(text))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
}

func TestWrongRequestsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "MissingAction",
		"Action=%zz":                            "MalformedQueryString",
		"Action=GetRole":                        "InvalidAction",
		"Action=AssumeRole&Version=2010-01-01":  "InvalidAction",
		"Action=AssumeRole&Action=AssumeRole":   "given 2 times",
		"Action=AssumeRole&DurationSeconds=899": `"899"; expected a number from 900`,
		"Action=AssumeRole&DurationSeconds=1e9": "DurationSeconds",
		"Action=AssumeRole&DurationSeconds=99999999999999":      "DurationSeconds",
		"Action=AssumeRole&RoleSessionName=a":                   "RoleSessionName",
		"Action=AssumeRole&RoleSessionName=a%2Fb":               "RoleSessionName",
		"Action=AssumeRole&RoleArn=reader":                      "RoleArn",
		"Action=AssumeRole&RoleArn=arn:aws:iam::1:role/a*":      "RoleArn",
		"Action=AssumeRole&SerialNumber=1":                      "SerialNumber is not supported",
		"Action=AssumeRole&Tags.member.1.Key=a":                 "not supported",
		"Action=AssumeRole&PolicyArns.member.1.arn=reader":      "PolicyArns.member.1.arn",
		"Action=AssumeRoleWithWebIdentity":                      "WebIdentityToken is missing",
		"Action=AssumeRole&Policy=" + strings.Repeat("a", 2049): "2049 characters",
	} {
		_, err := Parse([]byte(text))
		var r *Refusal
		if !errors.As(err, &r) || r.Status != 400 || !strings.Contains(r.Error(), want) {
			t.Errorf("%.80s: %v, expected %q", text, err, want)
		}
	}
	many := url.Values{"Action": {AssumeRole}}
	for _, i := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
		many.Set("PolicyArns.member."+i+".arn", "arn:aws:iam::1:policy/p")
	}
	if _, err := Parse([]byte(many.Encode())); err == nil {
		t.Error("11 policies were accepted")
	}
}

func TestRepliesHaveTheFormOfAWS(t *testing.T) {
	s := Session{Credentials: Credentials{AccessKey: "ASIAX", SecretKey: "s<", Token: "t", Expires: time.Unix(1e9, 0)},
		Role: "reader", Name: "me", Subject: "alice", Audience: "storage", Provider: "https://i"}
	text, err := Reply(AssumeRoleWithWebIdentity, "id-1", s)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
		Key     string   `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Secret  string   `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Expires string   `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
		ARN     string   `xml:"AssumeRoleWithWebIdentityResult>AssumedRoleUser>Arn"`
		Subject string   `xml:"AssumeRoleWithWebIdentityResult>SubjectFromWebIdentityToken"`
		ID      string   `xml:"ResponseMetadata>RequestId"`
	}
	if err := xml.Unmarshal(text, &got); err != nil || got.Key != "ASIAX" || got.Secret != "s<" || got.ID != "id-1" ||
		got.Expires != "2001-09-09T01:46:40Z" || got.Subject != "alice" ||
		got.ARN != "arn:aws:sts::000000000000:assumed-role/reader/me" {
		t.Errorf("%v %+v\n%s", err, got, text)
	}
	text, err = Reply(GetCallerIdentity, "id-2", Caller{ARN: "arn:a", UserID: "u", Number: Account})
	if err != nil || !strings.Contains(string(text), "<GetCallerIdentityResult><Arn>arn:a</Arn><UserId>u</UserId>"+
		"<Account>000000000000</Account></GetCallerIdentityResult>") {
		t.Errorf("%v\n%s", err, text)
	}
	refused := string(Refuse(403, "AccessDenied", "no %s", "<b>").XML("id-3"))
	if !strings.Contains(refused,
		"<Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no &lt;b&gt;</Message></Error>"+
			"<RequestId>id-3</RequestId>") {
		t.Error(refused)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(
		[]byte("Action=AssumeRole&DurationSeconds=900&RoleArn=arn:aws:iam::1:role/a&PolicyArns.member.1.arn=arn::policy/a"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body)
		var refused *Refusal
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("%v", err)
		}
		if err == nil && (r.Duration != 0 && r.Duration < MinDuration || len(r.Policy) > maxPolicy ||
			len(r.PolicyNames) > maxPolicyNames) {
			t.Fatalf("%+v", r)
		}
	})
}
