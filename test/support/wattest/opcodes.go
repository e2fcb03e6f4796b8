// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import "strings"

// opcode is the encoding of an instruction and the kinds of its immediates: l is a local, g a global, f a function, b a
// label, i and I are integers, d and D floats, m is a memory argument, t a label table, c a type, and r a reference
// type. o opens a block and e closes one. 0 stands for one zero byte, and 2 for two.
type opcode struct {
	code  []byte
	imm   byte
	align byte
}

// numeric lists the instructions without immediates. Their opcodes are consecutive, beginning with 0x45.
const numeric = `
i32.eqz i32.eq i32.ne i32.lt_s i32.lt_u i32.gt_s i32.gt_u i32.le_s i32.le_u i32.ge_s i32.ge_u i64.eqz i64.eq
i64.ne i64.lt_s i64.lt_u i64.gt_s i64.gt_u i64.le_s i64.le_u i64.ge_s i64.ge_u f32.eq f32.ne f32.lt f32.gt
f32.le f32.ge f64.eq f64.ne f64.lt f64.gt f64.le f64.ge i32.clz i32.ctz i32.popcnt i32.add i32.sub i32.mul
i32.div_s i32.div_u i32.rem_s i32.rem_u i32.and i32.or i32.xor i32.shl i32.shr_s i32.shr_u i32.rotl i32.rotr
i64.clz i64.ctz i64.popcnt i64.add i64.sub i64.mul i64.div_s i64.div_u i64.rem_s i64.rem_u i64.and i64.or
i64.xor i64.shl i64.shr_s i64.shr_u i64.rotl i64.rotr f32.abs f32.neg f32.ceil f32.floor f32.trunc f32.nearest
f32.sqrt f32.add f32.sub f32.mul f32.div f32.min f32.max f32.copysign f64.abs f64.neg f64.ceil f64.floor
f64.trunc f64.nearest f64.sqrt f64.add f64.sub f64.mul f64.div f64.min f64.max f64.copysign i32.wrap_i64
i32.trunc_f32_s i32.trunc_f32_u i32.trunc_f64_s i32.trunc_f64_u i64.extend_i32_s i64.extend_i32_u
i64.trunc_f32_s i64.trunc_f32_u i64.trunc_f64_s i64.trunc_f64_u f32.convert_i32_s f32.convert_i32_u
f32.convert_i64_s f32.convert_i64_u f32.demote_f64 f64.convert_i32_s f64.convert_i32_u f64.convert_i64_s
f64.convert_i64_u f64.promote_f32 i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32
f64.reinterpret_i64 i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s`

var opcodes = func() map[string]opcode {
	all := map[string]opcode{
		"unreachable":   {code: []byte{0x00}},
		"nop":           {code: []byte{0x01}},
		"block":         {code: []byte{0x02}, imm: 'o'},
		"loop":          {code: []byte{0x03}, imm: 'o'},
		"if":            {code: []byte{0x04}, imm: 'o'},
		"else":          {code: []byte{0x05}},
		"end":           {code: []byte{0x0b}, imm: 'e'},
		"br":            {code: []byte{0x0c}, imm: 'b'},
		"br_if":         {code: []byte{0x0d}, imm: 'b'},
		"br_table":      {code: []byte{0x0e}, imm: 't'},
		"return":        {code: []byte{0x0f}},
		"call":          {code: []byte{0x10}, imm: 'f'},
		"call_indirect": {code: []byte{0x11}, imm: 'c'},
		"drop":          {code: []byte{0x1a}},
		"select":        {code: []byte{0x1b}},
		"local.get":     {code: []byte{0x20}, imm: 'l'},
		"local.set":     {code: []byte{0x21}, imm: 'l'},
		"local.tee":     {code: []byte{0x22}, imm: 'l'},
		"global.get":    {code: []byte{0x23}, imm: 'g'},
		"global.set":    {code: []byte{0x24}, imm: 'g'},
		"table.get":     {code: []byte{0x25}, imm: '0'},
		"table.set":     {code: []byte{0x26}, imm: '0'},
		"i32.load":      {code: []byte{0x28}, imm: 'm', align: 2},
		"i64.load":      {code: []byte{0x29}, imm: 'm', align: 3},
		"f32.load":      {code: []byte{0x2a}, imm: 'm', align: 2},
		"f64.load":      {code: []byte{0x2b}, imm: 'm', align: 3},
		"i32.load8_s":   {code: []byte{0x2c}, imm: 'm'},
		"i32.load8_u":   {code: []byte{0x2d}, imm: 'm'},
		"i32.load16_s":  {code: []byte{0x2e}, imm: 'm', align: 1},
		"i32.load16_u":  {code: []byte{0x2f}, imm: 'm', align: 1},
		"i64.load8_s":   {code: []byte{0x30}, imm: 'm'},
		"i64.load8_u":   {code: []byte{0x31}, imm: 'm'},
		"i64.load16_s":  {code: []byte{0x32}, imm: 'm', align: 1},
		"i64.load16_u":  {code: []byte{0x33}, imm: 'm', align: 1},
		"i64.load32_s":  {code: []byte{0x34}, imm: 'm', align: 2},
		"i64.load32_u":  {code: []byte{0x35}, imm: 'm', align: 2},
		"i32.store":     {code: []byte{0x36}, imm: 'm', align: 2},
		"i64.store":     {code: []byte{0x37}, imm: 'm', align: 3},
		"f32.store":     {code: []byte{0x38}, imm: 'm', align: 2},
		"f64.store":     {code: []byte{0x39}, imm: 'm', align: 3},
		"i32.store8":    {code: []byte{0x3a}, imm: 'm'},
		"i32.store16":   {code: []byte{0x3b}, imm: 'm', align: 1},
		"i64.store8":    {code: []byte{0x3c}, imm: 'm'},
		"i64.store16":   {code: []byte{0x3d}, imm: 'm', align: 1},
		"i64.store32":   {code: []byte{0x3e}, imm: 'm', align: 2},
		"memory.size":   {code: []byte{0x3f}, imm: '0'},
		"memory.grow":   {code: []byte{0x40}, imm: '0'},
		"i32.const":     {code: []byte{0x41}, imm: 'i'},
		"i64.const":     {code: []byte{0x42}, imm: 'I'},
		"f32.const":     {code: []byte{0x43}, imm: 'd'},
		"f64.const":     {code: []byte{0x44}, imm: 'D'},
		"ref.null":      {code: []byte{0xd0}, imm: 'r'},
		"ref.is_null":   {code: []byte{0xd1}},
		"ref.func":      {code: []byte{0xd2}, imm: 'f'},
		"memory.copy":   {code: []byte{0xfc, 0x0a}, imm: '2'},
		"memory.fill":   {code: []byte{0xfc, 0x0b}, imm: '0'},
		"table.grow":    {code: []byte{0xfc, 0x0f}, imm: '0'},
		"table.size":    {code: []byte{0xfc, 0x10}, imm: '0'},
		"table.fill":    {code: []byte{0xfc, 0x11}, imm: '0'},
	}
	for i, name := range strings.Fields(numeric) {
		all[name] = opcode{code: []byte{byte(0x45 + i)}}
	}
	return all
}()
