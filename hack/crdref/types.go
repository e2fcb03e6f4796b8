// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// kind describes a custom resource.
type kind struct {
	name, apiVersion, doc string
	markers               markers
	fields                []field
}

// field describes a field of a custom resource, below spec or status.
type field struct {
	path, kind, doc string
	required        bool
	markers         markers
}

// markers contains the values of the markers in a comment, by the names of the markers. A marker is a line that begins
// with "+".
type markers map[string][]string

// ruleMarker is the name of the marker for CEL rules.
const ruleMarker = "kubebuilder:validation:XValidation:rule"

// first returns the first value of a marker. If the value is a string, its quotes are removed.
func (m markers) first(name string) string {
	if len(m[name]) == 0 {
		return ""
	}
	if text, err := strconv.Unquote(m[name][0]); err == nil {
		return text
	}
	return m[name][0]
}

// apiPackage holds the declarations of one version of an API group.
type apiPackage struct {
	apiVersion string
	types      map[string]*ast.TypeSpec
	comments   map[string]string
	values     map[string][]string // values of the constants, by type
}

// readKinds returns the custom resources in the packages FOLDER/GROUP/VERSION, sorted by group and name.
func readKinds(folder string) (kinds []kind, err error) {
	dirs, err := filepath.Glob(filepath.Join(folder, "*", "v*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		read, err := readPackage(dir)
		if err != nil {
			return nil, fmt.Errorf("reading %s, %w", dir, err)
		}
		kinds = append(kinds, read.kinds()...)
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return strings.Compare(a.apiVersion+a.name, b.apiVersion+b.name)
	})
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no custom resource below %s", folder)
	}
	return kinds, nil
}

func readPackage(dir string) (*apiPackage, error) {
	p := &apiPackage{types: map[string]*ast.TypeSpec{}, comments: map[string]string{}, values: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "zz_generated") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if err := p.addGroup(path); err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok {
				p.add(general)
			}
		}
	}
	if p.apiVersion == "" {
		return nil, fmt.Errorf("no file has a literal schema.GroupVersion{Group: …, Version: …}")
	}
	return p, nil
}

// add records the types and constants in a declaration.
func (p *apiPackage) add(declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			comment := s.Doc
			if comment == nil {
				comment = declaration.Doc
			}
			p.types[s.Name.Name], p.comments[s.Name.Name] = s, raw(comment)
		case *ast.ValueSpec:
			name, ok := s.Type.(*ast.Ident)
			if !ok || declaration.Tok != token.CONST {
				continue
			}
			for _, value := range s.Values {
				if literal, ok := value.(*ast.BasicLit); ok {
					p.values[name.Name] = append(p.values[name.Name], strings.Trim(literal.Value, `"`))
				}
			}
		}
	}
}

// kinds returns the custom resources of the package. List types are omitted.
func (p *apiPackage) kinds() (kinds []kind) {
	for name, spec := range p.types {
		doc, marked := split(p.comments[name])
		body, ok := spec.Type.(*ast.StructType)
		if !ok || marked.first("kubebuilder:object:root") != "true" || strings.HasSuffix(name, "List") {
			continue
		}
		k := kind{name: name, apiVersion: p.apiVersion, doc: doc, markers: marked}
		p.walk(body, "", nil, &k.fields)
		kinds = append(kinds, k)
	}
	return kinds
}

// walk appends the fields of a struct. If the type of a field is a struct of this package, walk also appends that
// struct's fields.
func (p *apiPackage) walk(body *ast.StructType, path string, within []string, fields *[]field) {
	for _, declared := range body.Fields.List {
		tag := ""
		if declared.Tag != nil {
			tag = reflect.StructTag(strings.Trim(declared.Tag.Value, "`")).Get("json")
		}
		name, options, _ := strings.Cut(tag, ",")
		inner, text := p.resolve(declared.Type)
		if name == "-" || path == "" && (name == "" || name == "metadata") {
			continue
		}
		if strings.Contains(options, "inline") || name == "" {
			if inner != nil {
				p.walk(inner, path, within, fields)
			}
			continue
		}
		doc, marked := split(raw(declared.Doc))
		typeName := strings.Trim(text, "[]*")
		_, ofType := split(p.comments[typeName])
		marked[ruleMarker] = append(marked[ruleMarker], ofType[ruleMarker]...)
		if len(marked["kubebuilder:validation:Enum"]) == 0 {
			marked["kubebuilder:validation:Enum"] = ofType["kubebuilder:validation:Enum"]
			if values := p.values[typeName]; len(ofType["kubebuilder:validation:Enum"]) == 0 && len(values) > 0 {
				marked["values"] = []string{strings.Join(values, ";")}
			}
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		*fields = append(*fields, field{path: at, kind: p.describe(text), doc: doc, markers: marked,
			required: !strings.Contains(options, "omit") && marked["optional"] == nil && strings.HasPrefix(at, "spec.")})
		if inner != nil && !slices.Contains(within, typeName) {
			p.walk(inner, at+suffix(declared.Type), append(slices.Clone(within), typeName), fields)
		}
	}
}

// suffix returns the text to append to the path of a list or a map.
func suffix(expression ast.Expr) string {
	switch expression.(type) {
	case *ast.ArrayType:
		return "[]"
	case *ast.MapType:
		return ".*"
	}
	return ""
}

// resolve returns the description of a type. If the type is a struct of this package, or a list or a map of such
// structs, resolve also returns the struct.
func (p *apiPackage) resolve(expression ast.Expr) (*ast.StructType, string) {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return p.resolve(e.X)
	case *ast.ArrayType:
		inner, text := p.resolve(e.Elt)
		return inner, "[]" + text
	case *ast.MapType:
		inner, text := p.resolve(e.Value)
		return inner, "map " + text
	case *ast.SelectorExpr:
		return nil, e.Sel.Name
	case *ast.Ident:
		if spec := p.types[e.Name]; spec != nil {
			if inner, ok := spec.Type.(*ast.StructType); ok {
				return inner, e.Name
			}
			if alias, ok := spec.Type.(*ast.SelectorExpr); ok {
				return nil, alias.Sel.Name
			}
		}
		return nil, e.Name
	case *ast.StructType:
		return e, "object"
	}
	return nil, "any"
}

// describe returns the API's name of a Go type, such as boolean or integer.
func (p *apiPackage) describe(text string) string {
	if text == "[]byte" {
		return "bytes in base64"
	}
	if element, ok := strings.CutPrefix(text, "[]"); ok {
		return "list of " + p.describe(element)
	}
	if element, ok := strings.CutPrefix(text, "map "); ok {
		return "map to " + p.describe(element)
	}
	if spec := p.types[text]; spec != nil {
		if _, isStruct := spec.Type.(*ast.StructType); isStruct {
			return "object"
		}
		_, text = p.resolve(spec.Type)
		return p.describe(text)
	}
	switch text {
	case "bool":
		return "boolean"
	case "int", "int32", "int64", "uint":
		return "integer"
	case "ClusterID": // the type ClusterID is declared in the group core.liqo.io
		return "string"
	}
	return text
}
