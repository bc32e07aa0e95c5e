// SPDX-License-Identifier: Apache-2.0

package sts

import (
	"encoding/xml"
	"net/http"
	"time"
)

// Account is the number of the AWS account in the ARNs of this server.
const Account = "000000000000"

// Credentials are temporary keys.
type Credentials struct {
	AccessKey, SecretKey, Token string
	Expires                     time.Time
}

// Session is the answer to AssumeRole and AssumeRoleWithWebIdentity.
type Session struct {
	Credentials
	Role, Name string // parts of the ARN of the session
	// Subject, Audience and Provider describe the token; empty for AssumeRole.
	Subject, Audience, Provider string
	// Packed is the size of the session policy, in per cent of the largest size.
	Packed int
}

// ARN returns the ARN of a session with a role and a name.
func ARN(role, name string) string {
	return "arn:aws:sts::" + Account + ":assumed-role/" + role + "/" + name
}

// Caller is the answer to GetCallerIdentity.
type Caller struct {
	ARN    string `xml:"Arn"`
	UserID string `xml:"UserId"`
	Number string `xml:"Account"`
}

const namespace = "https://sts.amazonaws.com/doc/2011-06-15/"

type sessionXML struct {
	Subject  string `xml:"SubjectFromWebIdentityToken,omitempty"`
	Audience string `xml:",omitempty"`
	User     struct {
		ID  string `xml:"AssumedRoleId"`
		ARN string `xml:"Arn"`
	} `xml:"AssumedRoleUser"`
	Credentials struct {
		AccessKey string `xml:"AccessKeyId"`
		Secret    string `xml:"SecretAccessKey"`
		Token     string `xml:"SessionToken"`
		Expires   string `xml:"Expiration"`
	}
	Provider string `xml:",omitempty"`
	Packed   int    `xml:"PackedPolicySize,omitempty"`
}

// document is the outermost element of a reply. The action names it.
type document struct {
	XMLName   xml.Name
	Result    any
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

// named gives a value the element name of an action's result.
type named struct {
	name string
	v    any
}

// MarshalXML writes the value with its name.
func (n named) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	return e.EncodeElement(n.v, xml.StartElement{Name: xml.Name{Local: n.name}})
}

// Reply returns the XML of an answer, which is a Session or a Caller.
func Reply(action, requestID string, answer any) ([]byte, error) {
	if s, ok := answer.(Session); ok {
		var x sessionXML
		x.Subject, x.Audience, x.Provider, x.Packed = s.Subject, s.Audience, s.Provider, s.Packed
		x.User.ID, x.User.ARN = s.AccessKey+":"+s.Name, ARN(s.Role, s.Name)
		c := &x.Credentials
		c.AccessKey, c.Secret, c.Token = s.AccessKey, s.SecretKey, s.Token
		c.Expires = s.Expires.UTC().Format(time.RFC3339)
		answer = x
	}
	text, err := xml.Marshal(document{XMLName: xml.Name{Space: namespace, Local: action + "Response"},
		Result: named{action + "Result", answer}, RequestID: requestID})
	return append([]byte(xml.Header), text...), err
}

// XML returns the error document of a Refusal.
func (r *Refusal) XML(requestID string) []byte {
	type inner struct {
		Type, Code, Message string
	}
	kind := "Sender"
	if r.Status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	text, _ := xml.Marshal(struct { // cannot fail: all fields are texts
		XMLName   xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ ErrorResponse"`
		Error     inner
		RequestID string `xml:"RequestId"`
	}{Error: inner{kind, r.Code, r.Message}, RequestID: requestID})
	return append([]byte(xml.Header), text...)
}
