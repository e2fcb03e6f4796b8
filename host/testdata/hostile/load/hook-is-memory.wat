;; Exports its memory under the name of a hook.
;; want: manifest: outgoing
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "{\22name\22:\22bad\22,\22version\22:\221\22,\22kinds\22:[\22*\22],\22hooks\22:[\22outgoing\22],\22writes\22:[\22*\22]}")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511182))
  (export "outgoing" (memory 0))
  )
