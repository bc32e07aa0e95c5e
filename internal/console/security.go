// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The content security policies of the console. Pages may load only files of their own origin, and their scripts cannot
// turn text into markup. Replies of the API are no documents at all.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
	apiPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

// csrfHeader is the header that repeats the token of the session in requests with effects.
const csrfHeader = "X-Csrf-Token"

// Names of the session's cookie. Browsers accept the prefix __Host- only from TLS, without a domain and for all paths.
const (
	secureCookie = "__Host-nebulaio"
	plainCookie  = "nebulaio"
)

// setHeaders sets the headers of every reply.
func setHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-write=(self)")
	h.Set("Content-Security-Policy", apiPolicy)
	h.Set("Cache-Control", "no-store")
}

// secured sets the headers, and refuses requests that come from other sites or over an open network.
func (c *Console) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		// A long transfer before this request may have left its deadline on the connection.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a connection without deadlines has none to clear
		if strings.HasPrefix(r.URL.Path, api) {
			if err := c.refusal(r); err != nil {
				fail(w, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Console) tls() bool { return c.opts.Config.TLS.Enabled() }

// refusal returns why a request to the API is refused before its session is looked at.
func (c *Console) refusal(r *http.Request) error {
	conf := &c.opts.Config.Console
	if c.opts.Exposed && !c.tls() && !conf.AllowPlainHTTP {
		return &failed{http.StatusForbidden, "PlainHTTP",
			"other machines can reach this address over plain HTTP, so keys and sessions could be read on the way",
			"set tls.generate or tls.cert, listen on 127.0.0.1, or set console.allow_plain_http"}
	}
	if !c.tls() && !c.knownHost(r.Host) {
		return &failed{http.StatusForbidden, "UnknownHost", "the console is not known under the host name " + quoted(r.Host),
			"add the name to console.hosts, or use the IP address or localhost"}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return &failed{http.StatusForbidden, "CrossSite", "the request comes from another site", ""}
	}
	if origin, has := r.Header["Origin"]; has && !sameOrigin(origin, r.Host) {
		return &failed{http.StatusForbidden, "CrossSite", "the request comes from another site", ""}
	}
	return nil
}

// knownHost reports whether the Host header of a plain request names this server. A page of another site can make a
// browser believe that its own name is the address of this server (DNS rebinding), but cannot change the name.
func (c *Console) knownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	own, _, _ := net.SplitHostPort(c.opts.Config.ConsoleAddress)
	known := append([]string{"localhost", own, c.opts.Host}, c.opts.Config.Console.Hosts...)
	return name != "" && slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
}

// sameOrigin reports whether the header Origin names the host of the request. A proxy may have ended TLS, so the scheme
// is not compared.
func sameOrigin(origin []string, host string) bool {
	if len(origin) != 1 {
		return false
	}
	u, err := url.Parse(origin[0])
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// cookieName returns the name of the session's cookie.
func (c *Console) cookieName() string {
	if c.tls() {
		return secureCookie
	}
	return plainCookie
}

// token returns the token in the session's cookie. Two cookies of the name are none: one of them may come from another
// host of the domain.
func (c *Console) token(r *http.Request) string {
	all := r.CookiesNamed(c.cookieName())
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// setCookie sets the session's cookie, or removes it if the token is empty.
func (c *Console) setCookie(w http.ResponseWriter, token string) {
	k := &http.Cookie{Name: c.cookieName(), Value: token, Path: "/", HttpOnly: true, Secure: c.tls(),
		SameSite: http.SameSiteStrictMode}
	if token == "" {
		k.MaxAge = -1
	}
	http.SetCookie(w, k)
}

// handle returns the handler of a route for users who are logged in.
func (c *Console) handle(h func(*call) (any, error), admins bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parts := c.parts.Load()
		if parts == nil {
			fail(w, errNotReady)
			return
		}
		token := c.token(r)
		find := parts.sessions.Find
		if r.Header.Get("X-Background") == "1" {
			find = parts.sessions.Look // a page that updates itself is no use of the session
		}
		user, err := find(token)
		if err != nil {
			refuse(w, http.StatusUnauthorized, "NotLoggedIn", "you are not logged in, or your session has ended",
				"log in with your access key")
			return
		}
		got := []byte(r.Header.Get(csrfHeader))
		if !safe(r.Method) && subtle.ConstantTimeCompare(got, []byte(user.CSRF)) != 1 {
			refuse(w, http.StatusForbidden, "CSRF", "the header X-CSRF-Token is not the token of this session",
				"reload the page")
			return
		}
		x := &call{Console: c, attached: parts, user: user, token: token, w: w, r: r}
		if admins && !x.admin() {
			refuse(w, http.StatusForbidden, "AdminOnly", "this page is for accounts with the role admin",
				"ask an administrator")
			return
		}
		v, err := h(x)
		answer(w, v, err)
	}
}

var errNotReady = &failed{http.StatusServiceUnavailable, "NotReady", "the server is starting or stopping",
	"try again in a moment"}

// at returns a pattern of the mux for a method and a route of the API.
func at(pattern string) string {
	method, route, _ := strings.Cut(pattern, " ")
	return method + " " + api + route
}

// clientAddr returns the address of the browser, for policies with conditions on it.
func clientAddr(r *http.Request) net.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return &net.TCPAddr{} // no address matches a condition
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}

// longRequest lets a request run longer than the time limit of small requests. Each step of the request gets the time.
const longRequest = 2 * time.Minute

// extend gives the client another time to send or receive.
func (c *call) extend() {
	control := http.NewResponseController(c.w)
	end := time.Now().Add(longRequest)
	_ = control.SetReadDeadline(end)  // a connection that cannot have a deadline has none to move
	_ = control.SetWriteDeadline(end) // as above
}
