;; Straight-line code is paid at the entry, a loop's own code at each pass through its header.
(module
  (func (export "count") (param $n i32) (result i32) (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $sum (i32.add (local.get $sum) (local.get $n)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (local.get $sum)))
