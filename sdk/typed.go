// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"encoding/json"
	"errors"
)

// Decode reads the value at path into a Go value, by the rules of
// encoding/json. What is absent is an error.
//
// It is comfortable for a list of structs and has its price: encoding/json adds
// about 290 KB to a module that uses it, and takes some ten times as long as
// reading the few fields that matter.
func Decode(n Node, path string, into any) error {
	text := n.JSON(path)
	if text == nil {
		return errors.New(path + " is absent")
	}
	return json.Unmarshal(text, into)
}

// Encode sets what a Go value is in JSON at path. Fields that its type does
// not have are lost: decode and encode the smallest subtree that will do.
func Encode(n Node, path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	n.SetJSON(path, text)
	return nil
}
