// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// fileForm posts a form of an account whose file part has a disposition, with the conditions of its policy beside those
// on the signature.
func (w *world) fileForm(access, bucket, key, disposition string, conditions ...string) *reply {
	w.t.Helper()
	now := time.Now().UTC()
	day, date := now.Format("20060102"), now.Format(amzDate)
	credential := fmt.Sprintf("%s/%s/%s/s3/aws4_request", access, day, testRegion)
	conditions = append(conditions, fmt.Sprintf(`{"bucket":%q}`, bucket), `{"x-amz-algorithm":"AWS4-HMAC-SHA256"}`,
		fmt.Sprintf(`{"x-amz-credential":%q}`, credential), fmt.Sprintf(`{"x-amz-date":%q}`, date))
	policy := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"expiration":%q,"conditions":[%s]}`,
		now.Add(time.Hour).Format("2006-01-02T15:04:05Z"), strings.Join(conditions, ",")))
	var b strings.Builder
	for _, f := range [][2]string{
		{"key", key}, {"x-amz-algorithm", "AWS4-HMAC-SHA256"}, {"x-amz-credential", credential}, {"x-amz-date", date},
		{"policy", policy}, {"x-amz-signature", signedWith(access+"-secret", day, policy)},
	} {
		fmt.Fprintf(&b, "--B\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", f[0], f[1])
	}
	fmt.Fprintf(&b,
		"--B\r\nContent-Disposition: form-data; name=\"file\"%s\r\nContent-Type: text/plain\r\n\r\ncontent\r\n--B--\r\n",
		disposition)
	return w.nobody("POST", "/"+bucket, b.String(), "Content-Type", "multipart/form-data; boundary=B")
}

// TestFormsAreNamedAfterTheirFile posts forms whose key has the variable for the file's name, also with hostile names.
func TestFormsAreNamedAfterTheirFile(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice")
	w.as("alice", 200, "PUT", "/corp", "")
	long := strings.Repeat("n", 2000)
	for _, c := range []struct {
		key, disposition, want string // an empty want is a refusal
	}{
		{"up/${filename}", `; filename="a.txt"`, "up/a.txt"},
		{"up/${filename}/${filename}", `; filename="b"`, "up/b/b"},
		{"up/$filename}${file}", `; filename="b"`, "up/$filename}${file}"},
		{"up/${filename}", `; filename="${filename}"`, "up/${filename}"},
		{"up/${filename}", `; filename="../../etc/passwd"`, "up/passwd"},
		{"up/${filename}", `; filename="C:\files\c.txt"`, "up/c.txt"},
		{"up/${filename}", `; filename*=UTF-8''%C3%A9.txt`, "up/é.txt"},
		{"up/x${filename}", ``, "up/x"},
		{"up/x${filename}", `; filename=""`, "up/x"},
		{"up/x${filename}", `; filename="dir/"`, "up/x"},
		{"plain", `; filename="` + long + `"`, "plain"},
		{"${filename}", `; filename=""`, ""},
		{"up/${filename}", `; filename=".."`, ""},
		{"up/${filename}", `; filename="/.."`, ""},
		{"up/${filename}", "; filename=\"a\x00b\"", ""},
		{"up/${filename}", `; filename*=UTF-8''a%00b`, ""},
		{"up/${filename}", "; filename=\"\xff\xfe\"", ""},
		{"up/${filename}", `; filename="` + long + `"`, ""},
	} {
		r := w.fileForm("alice", "corp", c.key, c.disposition, `["starts-with","$key",""]`)
		name := fmt.Sprintf("%s with %.40q", c.key, c.disposition)
		if c.want == "" {
			if r.StatusCode != 400 || strings.Contains(string(r.body), "<Message>Bad Request<") {
				t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
			}
			continue
		}
		if r.StatusCode != 204 {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
			continue
		}
		at := "/corp/" + strings.ReplaceAll(url.QueryEscape(c.want), "%2F", "/")
		if got := w.as("alice", 200, "GET", at, ""); string(got.body) != "content" {
			t.Errorf("%s: %q", name, got.body)
		}
		w.as("alice", 204, "DELETE", at, "")
	}
	list := string(w.as("alice", 200, "GET", "/corp", "").body)
	if strings.Contains(list, "<Contents>") {
		t.Errorf("something else was stored: %s", list)
	}
}

// TestConditionsSeeTheReplacedKey judges forms by the key that is stored: by the policy of the form and by the
// bucket's.
func TestConditionsSeeTheReplacedKey(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	// The account bob needs nothing but the permission for the key.
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(
		statement("Allow", "bob", "s3:PutObject", "corp/up/*"), statement("Deny", "bob", "s3:PutObject", "corp/up/secret")))
	for _, c := range []struct {
		key, file, condition string
		status               int
	}{
		{"up/${filename}", "a", `["starts-with","$key","up/"]`, 204},
		{"up/${filename}", "a", `["eq","$key","up/a"]`, 204},
		{"up/${filename}", "b", `["eq","$key","up/a"]`, 403},
		{"up/${filename}", "b", `["eq","$key","up/${filename}"]`, 403},
		{"${filename}", "b", `["starts-with","$key","up/"]`, 403},
		{"up/${filename}", "secret", `["starts-with","$key","up/"]`, 403},
		{"${filename}", "b", `["starts-with","$key",""]`, 403},
		{"other/${filename}", "b", `["starts-with","$key",""]`, 403},
	} {
		if r := w.fileForm("bob", "corp", c.key, `; filename="`+c.file+`"`, c.condition); r.StatusCode != c.status {
			t.Errorf("%s with %s and %s: %d, expected %d: %s", c.key, c.file, c.condition, r.StatusCode, c.status, r.body)
		}
	}
	w.as("alice", 404, "GET", "/corp/up/secret", "")
	w.as("alice", 404, "GET", "/corp/up/b", "")
	// Tags need their own permission, which a form's key does not give.
	tags := "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
	w.postedAs("bob", "bob-secret", time.Now(), 403, "corp", "up/a", "tagging", tags)
}

// FuzzFileName reads the name of a file from what any client may send.
func FuzzFileName(f *testing.F) {
	f.Add([]byte("--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../a\"\r\n\r\n"), "B")
	f.Add([]byte("--B\r\n: x\r\ncontent-disposition:form-data;filename*=UTF-8''%2e%2e%2f\r\n"), "B")
	f.Fuzz(func(t *testing.T, head []byte, boundary string) {
		if name := fileName(head, boundary); strings.ContainsAny(name, `/\`) || len(name) > len(head) {
			t.Errorf("%q", name)
		}
	})
}
