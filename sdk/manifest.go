// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// json returns the manifest as JSON for the host. It does not use encoding/json, which would add 100 KB to every
// module.
func (p *Plugin) json() []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"name":`...)
	b = appendQuoted(b, p.manifest.Name)
	b = append(b, `,"version":`...)
	b = appendQuoted(b, p.manifest.Version)
	b = append(b, `,"kinds":`...)
	b = appendQuotedList(b, p.manifest.Kinds)
	b = append(b, `,"hooks":`...)
	b = appendQuotedList(b, p.hookNames())
	b = append(b, `,"writes":`...)
	b = appendQuotedList(b, p.manifest.Writes)
	if len(p.manifest.Capabilities) > 0 {
		b = append(b, `,"capabilities":`...)
		b = appendQuotedList(b, p.manifest.Capabilities)
	}
	if p.manifest.ConfigSchema != "" {
		b = append(b, `,"configSchema":`...)
		b = append(b, p.manifest.ConfigSchema...)
	}
	return append(b, '}')
}

func (p *Plugin) hookNames() []string {
	var names []string
	for hook, f := range p.hooks {
		if f != nil {
			names = append(names, Hook(hook).String())
		}
	}
	return names
}

func appendQuotedList(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	return append(b, ']')
}

// appendQuoted appends s as a JSON string.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
