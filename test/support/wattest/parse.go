// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// node is a list, a string or an atom in the source.
type node struct {
	line   int
	atom   string
	str    []byte
	isStr  bool
	list   []node
	isList bool
}

func (n node) head() string {
	if n.isList && len(n.list) > 0 {
		return n.list[0].atom
	}
	return ""
}

func (n node) isName() bool { return strings.HasPrefix(n.atom, "$") }

// parser parses the source into nodes.
type parser struct {
	src  string
	pos  int
	line int
}

func parse(source string) ([]node, error) {
	p := &parser{src: source, line: 1}
	nodes, err := p.nodes(false)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", p.line, err)
	}
	return nodes, nil
}

func (p *parser) nodes(inner bool) (nodes []node, err error) {
	for {
		if err := p.space(); err != nil {
			return nil, err
		}
		if p.pos == len(p.src) {
			if inner {
				return nil, fmt.Errorf("missing )")
			}
			return nodes, nil
		}
		n := node{line: p.line}
		switch c := p.src[p.pos]; c {
		case ')':
			p.pos++
			if !inner {
				return nil, fmt.Errorf("unexpected )")
			}
			return nodes, nil
		case '(':
			p.pos++
			n.isList = true
			n.list, err = p.nodes(true)
		case '"':
			n.isStr = true
			n.str, err = p.string()
		default:
			start := p.pos
			for p.pos < len(p.src) && !strings.ContainsRune(" \t\r\n();\"", rune(p.src[p.pos])) {
				p.pos++
			}
			n.atom = p.src[start:p.pos]
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
}

// space skips white space and comments.
func (p *parser) space() error {
	for p.pos < len(p.src) {
		rest := p.src[p.pos:]
		switch {
		case rest[0] == '\n':
			p.line++
			p.pos++
		case strings.ContainsRune(" \t\r", rune(rest[0])):
			p.pos++
		case strings.HasPrefix(rest, ";;"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			p.pos += end
		case strings.HasPrefix(rest, "(;"):
			end := strings.Index(rest, ";)")
			if end < 0 {
				return fmt.Errorf("comment without end")
			}
			p.line += strings.Count(rest[:end], "\n")
			p.pos += end + 2
		case rest[0] == ';':
			return fmt.Errorf("unexpected ;")
		default:
			return nil
		}
	}
	return nil
}

func (p *parser) string() (out []byte, err error) {
	for p.pos++; p.pos < len(p.src); p.pos++ {
		c := p.src[p.pos]
		if c == '"' {
			p.pos++
			return out, nil
		}
		if c != '\\' {
			out = append(out, c)
			continue
		}
		if p.pos+2 >= len(p.src) {
			break
		}
		p.pos++
		switch c := p.src[p.pos]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case '"', '\\', '\'':
			out = append(out, c)
		default:
			b, err := hex.DecodeString(p.src[p.pos : p.pos+2])
			if err != nil {
				return nil, fmt.Errorf("escape \\%c: %w", c, err)
			}
			out = append(out, b...)
			p.pos++
		}
	}
	return nil, fmt.Errorf("string without end")
}
