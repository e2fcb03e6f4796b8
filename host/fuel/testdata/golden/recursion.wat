;; Only calls that can lead back to their caller take stack units: $even and $odd call each other, $plain is
;; just called, and nobody knows whom call_indirect calls.
(module
  (import "host" "inc" (func $inc (param i32) (result i32)))
  (table 1 funcref)
  (elem (i32.const 0) $plain)
  (func $plain (result i32) (call $inc (i32.const 1)))
  (func $even (param $n i32) (result i32)
    (if (result i32) (local.get $n)
      (then (call $odd (i32.sub (local.get $n) (i32.const 1))))
      (else (call $plain))))
  (func $odd (param $n i32) (result i32)
    (call $even (i32.sub (local.get $n) (i32.const 1))))
  (func (export "indirect") (result i32)
    (call_indirect (result i32) (i32.const 0))))
