// SPDX-License-Identifier: Apache-2.0

package attacks_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/nebulaio/nebulaio/test/console/started"
)

// rights are the attempts of a user without rights, and of nobody.
func rights() []attempt {
	denied := func(method, path string, body any) func(*world) string {
		return func(w *world) string { return expect(w.attacker.JSON(method, path, body), 403, "AccessDenied") }
	}
	each := func(b func(*world) *started.Browser, status int, code string, routes ...string) func(*world) string {
		return func(w *world) string {
			for _, route := range routes {
				method, path, _ := strings.Cut(route, " ")
				if why := expect(b(w).JSON(method, path, map[string]any{}), status, code); why != "" {
					return route + ": " + why
				}
			}
			return ""
		}
	}
	attacker := func(w *world) *started.Browser { return w.attacker }
	nobody := func(w *world) *started.Browser { return w.s.Browser() }
	one := map[string]any{"objects": []map[string]string{{"key": "secret.txt"}}}
	return []attempt{
		{"pages of administrators", each(attacker, 403, "AdminOnly", "GET users", "POST users", "GET users/victim",
			"PATCH users/victim", "DELETE users/victim", "POST grants", "POST revoke", "GET machine", "POST machine/diagnose",
			"GET machine/fix", "GET benchmarks", "GET benchmarks/a.json", "GET benchmarks-compare", "GET cluster",
			"GET config")},
		{"all routes without a session", each(nobody, 401, "NotLoggedIn", "GET session", "GET overview", "GET live",
			"GET rates", "GET buckets", "POST buckets", "GET buckets/private", "DELETE buckets/private",
			"PUT buckets/private/policy", "GET buckets/private/objects", "GET buckets/private/content?key=secret.txt",
			"PUT buckets/private/content?key=x", "POST buckets/private/delete", "POST buckets/private/share",
			"GET buckets/private/preview?key=secret.txt", "GET transfers", "GET users", "POST users", "GET config",
			"GET machine", "DELETE session")},
		{"a list of the buckets of others", func(w *world) string {
			if body := string(w.attacker.Must("GET", "buckets", nil).Body); strings.Contains(body, "private") {
				return body
			}
			return ""
		}},
		{"the settings of a bucket of others", denied("GET", "buckets/private", nil)},
		{"whether a bucket exists", func(w *world) string {
			there, gone := w.attacker.JSON("GET", "buckets/private", nil), w.attacker.JSON("GET", "buckets/missing-one", nil)
			if strings.Contains(string(there.Body), "victim") {
				return "the owner is told"
			}
			return either(expect(there, 403, "AccessDenied"), expect(gone, 404, "NoSuchBucket")) // as S3 itself tells
		}},
		{"a listing", denied("GET", "buckets/private/objects", nil)},
		{"a search", denied("GET", "buckets/private/objects?search=secret", nil)},
		{"a listing of versions", denied("GET", "buckets/private/versions", nil)},
		{"the description of an object", denied("GET", "buckets/private/object?key=secret.txt", nil)},
		{"a download", denied("GET", "buckets/private/content?key=secret.txt", nil)},
		{"a preview", denied("GET", "buckets/private/preview?key=secret.txt", nil)},
		{"a link", denied("POST", "buckets/private/share", map[string]any{"key": "secret.txt", "seconds": 60})},
		{"an upload", func(w *world) string { return expect(w.attacker.Put("private", "x", "x", nil), 403, "AccessDenied") }},
		{"an upload in parts", denied("POST", "buckets/private/uploads", map[string]any{"key": "x", "size": 1})},
		{"a list of unfinished uploads", denied("GET", "buckets/private/uploads", nil)},
		{"a deletion", denied("DELETE", "buckets/private/object?key=secret.txt", nil)},
		{"a deletion of many", func(w *world) string {
			w.attacker.JSON("POST", "buckets/private/delete", one)
			return expect(w.victim.JSON("GET", "buckets/private/object?key=secret.txt", nil), 200, "")
		}},
		{"the removal of a bucket", denied("DELETE", "buckets/private", nil)},
		{"a policy for oneself", denied("PUT", "buckets/private/policy",
			map[string]string{"policy": `{"Version":"2012-10-17",` +
				`"Statement":[{"Effect":"Allow","Principal":{"AWS":["attacker"]},"Action":"s3:*","Resource":"arn:aws:s3:::private/*"}]}`})},
		{"versioning turned off", denied("PUT", "buckets/private/versioning", map[string]string{"status": "suspended"})},
		{"tags of others", denied("PUT", "buckets/private/tags", map[string]any{"tags": map[string]string{"a": "b"}})},
		{"a bucket without the right to make one", denied("POST", "buckets", map[string]any{"name": "mine"})},
		{"the transfers of others", func(w *world) string {
			body := string(w.attacker.Must("GET", "transfers?limit=1000", nil).Body)
			if strings.Contains(body, "victim") || strings.Contains(body, "operator") || strings.Contains(body, "dropped") {
				return body
			}
			return ""
		}},
		{"the state of the server", func(w *world) string {
			var in struct {
				Capacity, Door, S3 any
				Warnings           []any
			}
			w.attacker.Must("GET", "overview", nil).Into(&in)
			if in.Capacity != nil || in.Door != nil || in.S3 != nil || len(in.Warnings) > 0 {
				return fmt.Sprintf("%+v", in)
			}
			return ""
		}},
		{"a role by an unknown field", func(w *world) string {
			return expect(w.root.JSON("POST", "users", map[string]any{"access_key": "newcomer", "role": "user", "root": true}),
				400, "InvalidRequest")
		}},
		{"an unknown role", func(w *world) string {
			return expect(w.root.JSON("POST", "users", map[string]any{"access_key": "newcomer", "role": "god"}), 400, "")
		}},
		{"the root account", func(w *world) string {
			return either(expect(w.root.JSON("PATCH", "users/"+started.RootUser,
				map[string]string{"secret_key": "another-secret"}),
				400, ""), expect(w.root.JSON("DELETE", "users/"+started.RootUser, nil), 409, "OwnAccount"))
		}},
		{"a forged address for a policy", func(w *world) string {
			w.victim.Must("PUT", "buckets/other/policy", map[string]string{"policy": `{"Version":"2012-10-17","Statement":[{` +
				`"Effect":"Allow","Principal":{"AWS":["attacker"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::other/*",` +
				`"Condition":{"IpAddress":{"aws:SourceIp":"203.0.113.7/32"}}}]}`})
			r := w.attacker.Send(started.Request{Method: "GET", Path: "buckets/other/content?key=page.html",
				Header: map[string]string{"X-Forwarded-For": "203.0.113.7", "X-Real-IP": "203.0.113.7"}})
			return expect(r, 403, "AccessDenied")
		}},
		{"a link after the right was taken away", func(w *world) string {
			allow := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["attacker"]},` +
				`"Action":"s3:GetObject","Resource":"arn:aws:s3:::other/*"}]}`
			w.victim.Must("PUT", "buckets/other/policy", map[string]string{"policy": allow})
			var link struct{ URL string }
			w.attacker.Must("POST", "buckets/other/share", map[string]any{"key": "page.html", "seconds": 60}).Into(&link)
			w.victim.Must("DELETE", "buckets/other/policy", nil)
			resp, err := http.Get(link.URL)
			if err != nil {
				w.t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				return fmt.Sprintf("status %d", resp.StatusCode)
			}
			return ""
		}},
		{"a link for longer than S3 allows", func(w *world) string {
			return expect(w.victim.JSON("POST", "buckets/private/share", map[string]any{"key": "secret.txt",
				"seconds": 8 * 24 * 3600}), 400, "InvalidRequest")
		}},
		{"a link to another host", func(w *world) string {
			var link struct{ URL string }
			r := w.victim.Send(started.Request{Method: "POST", Path: "buckets/private/share", Host: "203.0.113.7:9001",
				Header: map[string]string{"Content-Type": "application/json", "X-Forwarded-Host": "evil.example",
					"Cookie": cookie + "=" + tokenOf(w.victim)},
				Body: strings.NewReader(`{"key":"secret.txt","seconds":60}`),
				Size: int64(len(`{"key":"secret.txt","seconds":60}`))})
			r.Into(&link)
			if !strings.HasPrefix(link.URL, w.s.Endpoint+"/") {
				return fmt.Sprintf("%d %s", r.Status, r.Body)
			}
			return ""
		}},
	}
}
